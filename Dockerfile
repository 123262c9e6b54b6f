# A tagger as a service: docker build -t mlcl-serve .
#   docker run --rm -p 8000:8000 -e MLCL_TOKEN -v "$PWD/tagger:/model:ro" mlcl-serve
# Requests need the token; with the arguments `/model --host 0.0.0.0 --no-token` everybody may ask.
# The tagger is mounted read-only and is no part of the image. The process has no rights on the machine or the image.
FROM python:3.12-slim-bookworm

ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    OMP_WAIT_POLICY=PASSIVE

RUN groupadd --system --gid 10001 mlcl \
    && useradd --system --uid 10001 --gid mlcl --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin mlcl

WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
# torch first and from the index of CPU builds: those of PyPI bring gigabytes of CUDA.
RUN pip install --no-cache-dir --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch \
    && pip install --no-cache-dir --constraint constraints.txt '.[serve]' \
    && rm -rf /src/*

WORKDIR /model
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/live', timeout=4)"]
ENTRYPOINT ["mlcl", "serve"]
CMD ["/model", "--host", "0.0.0.0", "--port", "8000"]
