"""The rules of ``config/flags.toml`` as an OpenFeature provider.

Below the SDK, which calls it by the exact parameter names. Imports OpenFeature, so whoever needs this module imports it
late.
"""

from collections.abc import Mapping, Sequence

from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEventDetails
from openfeature.exception import FlagNotFoundError, TypeMismatchError
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType
from openfeature.provider import AbstractProvider, Metadata

from torpor.flags.contract import FlagContext
from torpor.flags.declared import Declarations, decide


class FileProvider(AbstractProvider):
    """Answers from the declarations it was last given; nothing in it waits."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__()
        self._declarations = declarations

    def replace(self, declarations: Declarations) -> None:
        """Answer from these from now on, and tell whoever listens which flags they concern."""
        old, self._declarations = self._declarations, declarations
        changed = sorted(key for key in old.keys() | declarations.keys() if old.get(key) != declarations.get(key))
        self.emit_provider_configuration_changed(ProviderEventDetails(flags_changed=changed))

    def get_metadata(self) -> Metadata:
        return Metadata(name="config/flags.toml")

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        flag = self._declarations.get(flag_key)
        if flag is None:
            raise FlagNotFoundError(f"flag {flag_key!r} is not declared")
        attributes = evaluation_context.attributes if evaluation_context else {}
        context = FlagContext(
            tenant=str(attributes.get("tenant", "")),
            owner=str(attributes.get("owner", "")),
            agent=str(attributes.get("agent", "")),
        )
        decision = decide(flag_key, flag, context)
        return FlagResolutionDetails(value=decision.value, variant=decision.variant, reason=decision.reason)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        raise _only_booleans(flag_key)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        raise _only_booleans(flag_key)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        raise _only_booleans(flag_key)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        raise _only_booleans(flag_key)


def _only_booleans(flag_key: str) -> TypeMismatchError:
    return TypeMismatchError(f"flag {flag_key!r} is on or off, it has no other value")
