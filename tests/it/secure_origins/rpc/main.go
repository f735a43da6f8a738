// Servers of gRPC-Web and Connect that speak HTTP/1.1 over TLS, and a client of both over HTTP/3 (quic-go). Beside
// them, in grpc.go, servers of gRPC over HTTP/2 and clients over HTTP/2 and HTTP/3.
//
//	rpc connect CERT KEY    connect-go's handlers
//	rpc grpc-web CERT KEY   grpc-go behind improbable-eng's wrapper
//	rpc call PROTOCOL CA URL
//	rpc grpc [RESTART]      grpc-go, in plaintext; restarted at that interval
//	rpc h2c                 connect-go's handlers on net/http, in plaintext
//	rpc grpc-call CLIENT CA HOST:PORT    CLIENT: grpc-go, connect-go
//	rpc load CA HOST:PORT DURATION
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/improbable-eng/grpc-web/go/grpcweb"
	"github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	upper = "/test.Words/Upper"
	count = "/test.Words/Count"
	fail  = "/test.Words/Fail"
)

type text = wrapperspb.StringValue

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func byConnect() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(upper, connect.NewUnaryHandler(upper, func(_ context.Context, request *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(wrapperspb.String(strings.ToUpper(request.Msg.Value))), nil
	}))
	mux.Handle(fail, connect.NewUnaryHandler(fail, func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such word"))
	}))
	mux.Handle(count, connect.NewServerStreamHandler(count, func(_ context.Context, request *connect.Request[text], stream *connect.ServerStream[text]) error {
		for _, word := range strings.Fields(request.Msg.Value) {
			if err := stream.Send(wrapperspb.String(word)); err != nil {
				return err
			}
		}
		stream.ResponseTrailer().Set("x-words", fmt.Sprint(len(strings.Fields(request.Msg.Value))))
		return nil
	}))
	mux.Handle(wait, connect.NewUnaryHandler(wait, func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
		return nil, waited(ctx)
	}))
	mux.Handle(chat, connect.NewBidiStreamHandler(chat, func(_ context.Context, stream *connect.BidiStream[text, text]) error {
		return echo(stream.Send, stream.Receive)
	}))
	return mux
}

func grpcServer(options ...grpc.ServerOption) *grpc.Server {
	decoded := func(decode func(any) error) *text {
		request := new(text)
		if err := decode(request); err != nil {
			panic(err)
		}
		return request
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Words",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Upper", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return wrapperspb.String(strings.ToUpper(decoded(decode).Value)), nil
			}},
			{MethodName: "Fail", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				decoded(decode)
				return nil, status.Error(codes.NotFound, "no such word")
			}},
			{MethodName: "Wait", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				decoded(decode)
				return nil, waited(ctx)
			}},
		},
		Streams: []grpc.StreamDesc{{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			return echo(func(message *text) error { return stream.SendMsg(message) }, func() (*text, error) {
				message := new(text)
				return message, stream.RecvMsg(message)
			})
		}}, {StreamName: "Count", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			request := new(text)
			if err := stream.RecvMsg(request); err != nil {
				return err
			}
			words := strings.Fields(request.Value)
			for _, word := range words {
				if err := stream.SendMsg(wrapperspb.String(word)); err != nil {
					return err
				}
			}
			stream.SetTrailer(metadata.Pairs("x-words", fmt.Sprint(len(words))))
			return nil
		}}},
	}, struct{}{})
	return server
}

func serve(handler http.Handler, cert, key string) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println(listener.Addr().(*net.TCPAddr).Port, "listening")
	seen := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Proto, r.URL.Path)
		handler.ServeHTTP(w, r)
	})
	config := &tls.Config{Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(cert, key))}}
	panic((&http.Server{Handler: seen, TLSConfig: config, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}).ServeTLS(listener, "", ""))
}

func trusting(ca string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile(ca)))
	return &tls.Config{RootCAs: roots}
}

// One line for each kind of call.
func call(protocol, ca, url string) {
	client := &http.Client{Transport: &http3.Transport{TLSClientConfig: trusting(ca)}}
	options := []connect.ClientOption{}
	if protocol == "grpc-web" {
		options = append(options, connect.WithGRPCWeb())
	}
	to := func(path string) *connect.Client[text, text] {
		return connect.NewClient[text, text](client, url+path, options...)
	}
	background := context.Background()
	for _, word := range []string{"word", strings.Repeat("x", 300000)} {
		answer := must(to(upper).CallUnary(background, connect.NewRequest(wrapperspb.String(word))))
		fmt.Println("upper", answer.Msg.Value == strings.ToUpper(word))
	}
	_, err := to(fail).CallUnary(background, connect.NewRequest(wrapperspb.String("word")))
	fmt.Println("fail", err)
	stream := must(to(count).CallServerStream(background, connect.NewRequest(wrapperspb.String("one two three"))))
	for stream.Receive() {
		fmt.Println("count", stream.Msg().Value)
	}
	if err := stream.Err(); err != nil && !errors.Is(err, io.EOF) {
		panic(err)
	}
	fmt.Println("trailer", stream.ResponseTrailer().Get("x-words"))
}

func main() {
	switch os.Args[1] {
	case "connect":
		serve(byConnect(), os.Args[2], os.Args[3])
	case "grpc-web":
		serve(grpcweb.WrapServer(grpcServer()), os.Args[2], os.Args[3])
	case "call":
		call(os.Args[2], os.Args[3], os.Args[4])
	case "grpc":
		serveGRPC(os.Args[2:])
	case "h2c":
		serveH2C()
	case "grpc-call":
		callGRPC(os.Args[2], os.Args[3], os.Args[4])
	case "load":
		load(os.Args[2], os.Args[3], must(time.ParseDuration(os.Args[4])))
	}
}
