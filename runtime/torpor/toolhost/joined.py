"""An agent's own tools and those from elsewhere, as one toolbox. A name is the agent's own first."""

import msgspec

from torpor.toolhost.contract import Toolbox, ToolContext, ToolResult, ToolSpec


class JoinedToolbox:
    """Implements ``contract.Toolbox``; made for a batch of calls."""

    def __init__(self, own: Toolbox, lent: Toolbox) -> None:
        self._own = own
        self._lent = lent

    def specs(self) -> tuple[ToolSpec, ...]:
        own = self._own.specs()
        names = {spec.name for spec in own}
        lent = (spec for spec in self._lent.specs() if spec.name not in names)
        return tuple(sorted((*own, *lent), key=lambda spec: spec.name))

    def spec(self, name: str) -> ToolSpec | None:
        return self._own.spec(name) or self._lent.spec(name)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        return await self._of(name).call(name, arguments, context)

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        return await self._of(name).probe(name, arguments, context)

    def _of(self, name: str) -> Toolbox:
        is_lent = self._own.spec(name) is None and self._lent.spec(name) is not None
        return self._lent if is_lent else self._own

    def __repr__(self) -> str:
        return f"<JoinedToolbox {self._own!r} {self._lent!r}>"
