# docker build --build-arg VERSION=$(git describe --tags --always) -t agentd .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
# timetzdata: the image below has no time zone files.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags timetzdata \
	-ldflags "-s -w -X main.version=${VERSION}" -o /rootfs/agentd ./cmd/agentd
# What a static binary still expects of a system: certificate authorities to call
# models over TLS, a user with a home, and a /tmp for the sockets of plugins.
RUN install -d -m 1777 /rootfs/tmp \
	&& install -d -o 65532 -g 65532 -m 0700 /rootfs/home/agentd \
	&& install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ca-certificates.crt \
	&& echo 'agentd:x:65532:65532:agentd:/home/agentd:/agentd' >/rootfs/etc/passwd \
	&& echo 'agentd:x:65532:' >/rootfs/etc/group

FROM scratch
COPY --from=build /rootfs /
USER 65532:65532
ENV HOME=/home/agentd
WORKDIR /home/agentd
EXPOSE 8080
# Nothing in here could ask; whatever runs the container should GET /readyz.
HEALTHCHECK NONE
ENTRYPOINT ["/agentd"]
CMD ["serve"]
