module litequic.test/rpc

go 1.26.0

require (
	connectrpc.com/connect v1.19.2
	github.com/improbable-eng/grpc-web v0.15.0
	github.com/quic-go/quic-go v0.65.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/cenkalti/backoff/v4 v4.1.1 // indirect
	github.com/desertbit/timer v0.0.0-20180107155436-c41aec40b27f // indirect
	github.com/klauspost/compress v1.11.7 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	github.com/rs/cors v1.7.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	nhooyr.io/websocket v1.8.6 // indirect
)
