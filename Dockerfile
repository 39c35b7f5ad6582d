# The image with controller, agent and worker, and nothing else: no shell, no package manager.
# Build it with BuildKit or buildah: both skip unused stages. (buildah 1.28 needs --build-arg
# BUNDLE=compiled: it ignores the default when it decides which stages are unused.)
#   docker build -t lockstep:0.1.0 .
# With CUDA, built in a Debian 12 image with the CUDA Toolkit, whose cuBLASLt and NCCL are copied:
#   docker build -t lockstep:0.1.0-cuda --build-arg CUDA=ON --build-arg BUILD_IMAGE=IMAGE .
# The image lists its parts, with versions and licences, in /usr/share/doc/lockstep/lockstep.spdx.json (SPDX 2.3).
# From prebuilt programs (tools/bundle build/bin build/bundle), without compiling:
#   docker build -t lockstep:0.1.0 --build-arg BUNDLE=prebuilt .
ARG BUILD_IMAGE=debian:bookworm-slim
ARG BUNDLE=compiled

FROM ${BUILD_IMAGE} AS compiled
ARG CUDA=OFF
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ cmake ninja-build binutils patchelf \
       nlohmann-json3-dev libcpprest-dev libyaml-cpp-dev prometheus-cpp-dev libcli11-dev \
       libdnnl-dev libboost-dev libssl-dev libre2-dev googletest python3 \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
RUN cmake --preset release -DLOCKSTEP_CUDA=${CUDA} \
    && cmake --build build-release --target lockstep-controller lockstep-agent lockstep-worker \
    && tools/bundle build-release/bin /bundle $([ "$CUDA" != ON ] || echo libcublasLt.so libnccl.so)

FROM scratch AS prebuilt
COPY build/bundle /bundle

FROM ${BUNDLE} AS bundle

FROM scratch
COPY --from=bundle /bundle/ /
USER 65532:65532
ENTRYPOINT ["/opt/lockstep/bin/lockstep-controller"]
