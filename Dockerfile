# The image with controller, agent and worker, and nothing else: no shell, no package manager.
# BuildKit or buildah builds it: both leave out stages that nothing needs. (buildah 1.28 has to be told
# --build-arg BUNDLE=compiled: it doesn't look at the default when it does so.)
#   docker build -t lockstep:0.1.0 .
# With CUDA, in an image of Debian 12 that has the CUDA Toolkit; its cuBLASLt and NCCL go into ours:
#   docker build -t lockstep:0.1.0-cuda --build-arg CUDA=ON --build-arg BUILD_IMAGE=IMAGE .
# Of programs that are built already (tools/bundle build/bin build/bundle), without compiling:
#   docker build -t lockstep:0.1.0 --build-arg BUNDLE=prebuilt .
ARG BUILD_IMAGE=debian:bookworm-slim
ARG BUNDLE=compiled

FROM ${BUILD_IMAGE} AS compiled
ARG CUDA=OFF
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ cmake ninja-build binutils patchelf \
       nlohmann-json3-dev libcpprest-dev libyaml-cpp-dev prometheus-cpp-dev libcli11-dev \
       libdnnl-dev libboost-dev libssl-dev libre2-dev googletest \
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
