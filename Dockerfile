# The engine, installed from its wheel, with the starter home in a volume; docs/operators.md, "In a container".

FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/torpor \
    && /opt/torpor/bin/pip install --quiet --upgrade pip \
    && /opt/torpor/bin/pip wheel --quiet --no-deps --wheel-dir /wheels . \
    && /opt/torpor/bin/pip install --quiet -c constraints.txt "$(ls /wheels/*.whl)[jwks]"

FROM python:3.11-slim
COPY --from=build /opt/torpor /opt/torpor
ENV PATH=/opt/torpor/bin:$PATH PYTHONUNBUFFERED=1
# compose.yaml gives the secret to this id.
RUN useradd --create-home --uid 1000 agent
USER agent
# A fresh named volume begins as a copy of this home; an empty directory mounted here needs `torpor init` once.
RUN torpor init /home/agent/home
# Commands given to the container find the home, and the server that runs in it, without --home.
WORKDIR /home/agent/home
VOLUME /home/agent/home
EXPOSE 8765
# Asks where the server has written that it listens, with TLS or without; whose certificate it is does not matter here.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import json, ssl, urllib.request as r; u = json.load(open('.torpor/server.json'))['url'].replace('ws', 'http', 1); r.urlopen(u + '/healthz', timeout=4, context=ssl._create_unverified_context())"]
# SIGTERM drains: running turns end first.
STOPSIGNAL SIGTERM
# Others can reach this address, so a start needs a secret and TLS, by files or by a proxy; compose.yaml shows how.
CMD ["torpor", "serve", "--host", "0.0.0.0", "--port", "8765"]
