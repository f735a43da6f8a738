# The image: litequic, CA certificates, a configuration that needs an origin and a certificate, and nothing else.
# docs/reference/container.md says how it is built, run and looked into.

# The compiler of rust-toolchain.toml, on the Debian whose C library the last stage has.
ARG RUST_IMAGE=rust:1.95-slim-bookworm
# Without OpenSSL and C++'s library, which litequic does not use: a third of what cc-debian12 has.
ARG RUNTIME_IMAGE=gcr.io/distroless/base-nossl-debian12:nonroot
# The profile that the program is compiled with (packaging/pgo.sh). Nothing at all: without one.
ARG PROFILE=packaging/litequic.profdata.gz

# The manifests of the workspace, with an empty source for each target that they name. The next stage copies them: it is built
# anew when a manifest changes, not when a source does.
FROM ${RUST_IMAGE} AS manifests
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY benches/micro/Cargo.toml benches/micro/Cargo.toml
COPY benches/replay/Cargo.toml benches/replay/Cargo.toml
COPY tests/kit/Cargo.toml tests/kit/Cargo.toml
COPY crates crates
RUN find crates -type f ! -name Cargo.toml -delete && \
    mkdir -p src examples benches/micro/src benches/micro/benches benches/replay/src tests/kit/src && \
    for crate in crates/*; do mkdir -p "$crate/src" && touch "$crate/src/lib.rs"; done && \
    touch src/lib.rs examples/soak.rs tests/kit/src/lib.rs && \
    touch benches/micro/src/lib.rs benches/micro/benches/hot_path.rs && \
    echo 'fn main() {}' | tee src/main.rs >benches/replay/src/main.rs

FROM ${RUST_IMAGE} AS dependencies
WORKDIR /src
# As the profile `dist` has it.
ENV CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
ARG PROFILE
# LICENSE is there so that something is copied where there is no profile.
COPY LICENSE ${PROFILE} packaging/names.sh packaging/
# Functions have the names by which the profile knows them.
ENV RUSTC_WRAPPER=/src/packaging/names.sh
# A target by its name, because a function's name, by which the profile knows it, has in it whether there is one.
RUN mkdir .cargo && { \
        echo "[build]" && \
        echo "target = \"$(rustc -vV | sed -n 's/^host: //p')\"" && \
        if [ -n "${PROFILE}" ]; then \
            gzip --decompress --stdout packaging/litequic.profdata.gz >/profile && \
            echo 'rustflags = ["-Cprofile-use=/profile", "-Cllvm-args=-no-pgo-warn-mismatch"]'; \
        fi; \
    } >.cargo/config.toml
COPY --from=manifests /src ./
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo build --release --locked --package litequic --bin litequic && \
    rm -r target/*/release/.fingerprint/litequic-* src crates examples benches

FROM dependencies AS program
COPY benches benches
# What `litequic example` prints.
COPY config config
COPY crates crates
COPY examples examples
COPY src src
# Without debug information: a backtrace still has its functions' names. The library that walks the stack is the compiler's.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo build --release --locked --package litequic --bin litequic && \
    objcopy --strip-debug target/*/release/litequic /litequic && \
    cp "$(gcc -print-file-name=libgcc_s.so.1)" /

# What the binary is made of, as CycloneDX: docker build --target sbom --output target .
FROM ${RUST_IMAGE} AS sbom-tool
ARG CARGO_CYCLONEDX=0.5.9
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo install --locked --version "${CARGO_CYCLONEDX}" cargo-cyclonedx
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY benches benches
COPY crates crates
COPY examples examples
COPY src src
COPY tests/kit tests/kit
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo cyclonedx --format json --spec-version 1.5

FROM scratch AS sbom
COPY --from=sbom-tool /src/litequic.cdx.json /

FROM ${RUNTIME_IMAGE} AS image
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
# The URL of the repository that it was built from.
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="litequic" \
      org.opencontainers.image.description="Terminates HTTP/3 and forwards HTTP/1.1 to an unmodified origin" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY LICENSE /usr/share/doc/litequic/LICENSE
COPY packaging/container/litequic.toml /etc/litequic/litequic.toml
COPY --from=program --chmod=0644 /libgcc_s.so.1 /usr/lib/
COPY --from=program --chmod=0755 /litequic /usr/local/bin/litequic
# Distroless' nonroot, by number: Kubernetes' runAsNonRoot accepts no names.
USER 65532:65532
EXPOSE 8443/udp 8443/tcp
STOPSIGNAL SIGTERM
# Of workers that do not turn any more; an origin that is down makes no container unhealthy.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --start-interval=1s --retries=3 \
    CMD ["/usr/local/bin/litequic", "ctl", "health"]
ENTRYPOINT ["/usr/local/bin/litequic"]
CMD ["run", "--config", "/etc/litequic/litequic.toml"]
