# limbeck in a container; it distils on the CPU unless another base is given.
#   docker build -t limbeck .
#   docker run --rm -v limbeck-cache:/cache -v "$PWD:/work" --user "$(id -u):$(id -g)" limbeck        # the quickstart
#   docker run --rm -v limbeck-cache:/cache -v "$PWD:/work" --user "$(id -u):$(id -g)" limbeck distill recipe.yaml
# With GPUs: a base that has Python 3.11 to 3.13 and torch, which is kept; Triton needs the C compiler of a `devel` one:
#   docker build -t limbeck:cuda --build-arg BASE=pytorch/pytorch:2.9.1-cuda12.8-cudnn9-devel .
#   docker run --rm --gpus all -v limbeck-cache:/cache -v "$PWD:/work" --user "$(id -u):$(id -g)" limbeck:cuda
ARG BASE=python:3.13-slim

FROM ${BASE} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY docs/methods docs/methods
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE}
ARG EXTRAS=quickstart
# Where torch comes from if the base has none: the index of CPU builds keeps gigabytes of CUDA out of the image.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# A container has one environment: that of the base's system Python, where it is marked as managed by the system.
ENV PIP_BREAK_SYSTEM_PACKAGES=1
COPY --from=wheel /wheels /wheels
# The versions are those that the wheel allows.
# hadolint ignore=DL3013
RUN python -c "import torch" 2>/dev/null \
        || python -m pip install --no-cache-dir --index-url "${TORCH_INDEX}" "torch>=2.9,<2.14"; \
    python -m pip install --no-cache-dir "$(echo /wheels/limbeck-*.whl)[${EXTRAS}]" \
    && rm -r /wheels \
    && useradd --create-home --uid 1001 limbeck \
    && mkdir -p /cache /work \
    && chmod 1777 /cache /work

# Any user may run it and keeps everything but the runs in the cache's volume; torch asks for a name, which an id given
# by --user has not.
ENV HOME=/cache \
    LOGNAME=limbeck \
    LIMBECK_CACHE=/cache/limbeck \
    HF_HOME=/cache/huggingface \
    MPLCONFIGDIR=/cache/matplotlib \
    PYTHONUNBUFFERED=1
VOLUME /cache
WORKDIR /work
USER 1001
ENTRYPOINT ["limbeck"]
CMD ["quickstart"]
