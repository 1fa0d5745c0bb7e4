# An image that runs `wm` on the CPU; without arguments it runs the tutorial's first command, `wm doctor`.
#   docker build -t wm . && docker run --rm wm
#   docker run --rm -v "$PWD/work:/work" wm collect --env CartPole --quick
# On Linux pip prefers torch's CUDA build, which is larger and works too. For the CPU build, name an index that has it:
#   docker build -t wm --build-arg TORCH=torch==2.13.0+cpu --build-arg PIP_EXTRA_INDEX_URL=... .
# With extras, as the workers of a cluster need them:
#   docker build -t wm --build-arg EXTRAS=cluster,s3 .
FROM python:3.11-slim

ARG TORCH=torch
ARG PIP_EXTRA_INDEX_URL
WORKDIR /opt/wm
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
# Wheels only, as in the Makefile. Torch has a layer of its own, which changes of the code leave alone.
RUN pip install --no-cache-dir --only-binary :all: --constraint constraints.txt "$TORCH" setuptools
COPY wm wm
COPY stages stages
ARG EXTRAS
RUN pip install --no-cache-dir --only-binary :all: --constraint constraints.txt --no-build-isolation \
    ".${EXTRAS:+[$EXTRAS]}"

# Without a display, SDL draws into memory.
ENV SDL_VIDEODRIVER=dummy
RUN useradd --create-home wm && mkdir /work && chown wm /work
USER wm
WORKDIR /work
ENTRYPOINT ["wm"]
CMD ["doctor"]
