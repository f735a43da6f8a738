package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	wait = "/test.Words/Wait"
	chat = "/test.Words/Chat"
)

// Waits for the call's end, and prints whether the client had announced that it waits for less than a second.
func waited(ctx context.Context) error {
	deadline, has := ctx.Deadline()
	short := has && time.Until(deadline) < time.Second
	<-ctx.Done()
	fmt.Println("waited, short deadline:", short)
	return ctx.Err()
}

// Speaks first, then sends back each message as it comes.
func echo(send func(*text) error, receive func() (*text, error)) error {
	if err := send(wrapperspb.String("first")); err != nil {
		return err
	}
	for {
		message, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := send(message); err != nil {
			return err
		}
	}
}

func serveGRPC(arguments []string) {
	address := "127.0.0.1:0"
	for {
		listener := must(net.Listen("tcp", address))
		address = listener.Addr().String()
		age := keepalive.ServerParameters{MaxConnectionAge: time.Second, MaxConnectionAgeGrace: 5 * time.Second}
		server := grpcServer(grpc.KeepaliveParams(age))
		healthpb.RegisterHealthServer(server, health.NewServer())
		reflection.Register(server)
		fmt.Println(listener.Addr().(*net.TCPAddr).Port, "listening")
		if len(arguments) > 0 {
			time.AfterFunc(must(time.ParseDuration(arguments[0])), server.GracefulStop)
		}
		if err := server.Serve(listener); err != nil {
			panic(err)
		}
		// Until calls in flight have ended.
		server.GracefulStop()
	}
}

func serveH2C() {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println(listener.Addr().(*net.TCPAddr).Port, "listening")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	panic((&http.Server{Handler: byConnect(), Protocols: protocols}).Serve(listener))
}

// One client's way to make calls.
type caller struct {
	unary func(ctx context.Context, path, message string) (string, error)
	// The trailer's `x-words` comes behind the last message.
	count func(ctx context.Context, message string) ([]string, string, error)
	chat  func(ctx context.Context) (send func(string) error, receive func() (string, error), end func() error)
}

func byGRPCGo(connection *grpc.ClientConn) caller {
	return caller{
		unary: func(ctx context.Context, path, message string) (string, error) {
			answer := new(text)
			err := connection.Invoke(ctx, path, wrapperspb.String(message), answer)
			return answer.Value, err
		},
		count: func(ctx context.Context, message string) (words []string, trailer string, err error) {
			stream := must(connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, count))
			must(0, errors.Join(stream.SendMsg(wrapperspb.String(message)), stream.CloseSend()))
			for {
				word := new(text)
				if err := stream.RecvMsg(word); errors.Is(err, io.EOF) {
					return words, strings.Join(stream.Trailer().Get("x-words"), ","), nil
				} else if err != nil {
					return words, "", err
				}
				words = append(words, word.Value)
			}
		},
		chat: func(ctx context.Context) (func(string) error, func() (string, error), func() error) {
			stream := must(connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, chat))
			send := func(message string) error { return stream.SendMsg(wrapperspb.String(message)) }
			return send, func() (string, error) {
				message := new(text)
				err := stream.RecvMsg(message)
				return message.Value, err
			}, stream.CloseSend
		},
	}
}

func byConnectGo(client connect.HTTPClient, url string) caller {
	to := func(path string) *connect.Client[text, text] {
		return connect.NewClient[text, text](client, url+path, connect.WithGRPC())
	}
	return caller{
		unary: func(ctx context.Context, path, message string) (string, error) {
			answer, err := to(path).CallUnary(ctx, connect.NewRequest(wrapperspb.String(message)))
			if err != nil {
				return "", err
			}
			return answer.Msg.Value, nil
		},
		count: func(ctx context.Context, message string) (words []string, trailer string, err error) {
			stream := must(to(count).CallServerStream(ctx, connect.NewRequest(wrapperspb.String(message))))
			for stream.Receive() {
				words = append(words, stream.Msg().Value)
			}
			return words, stream.ResponseTrailer().Get("x-words"), stream.Err()
		},
		chat: func(ctx context.Context) (func(string) error, func() (string, error), func() error) {
			stream := to(chat).CallBidiStream(ctx)
			// The header goes with the first message, or without one.
			must(0, stream.Send(nil))
			send := func(message string) error { return stream.Send(wrapperspb.String(message)) }
			return send, func() (string, error) {
				message, err := stream.Receive()
				if err != nil {
					return "", err
				}
				return message.Value, nil
			}, stream.CloseRequest
		},
	}
}

func dial(ca, address string) *grpc.ClientConn {
	secure := grpc.WithTransportCredentials(credentials.NewTLS(trusting(ca)))
	return must(grpc.NewClient(address, secure, grpc.WithDisableRetry()))
}

// The code of an error by either library, as `NOT_FOUND` or `not_found`.
func code(err error) string {
	if by := new(connect.Error); errors.As(err, &by) {
		return by.Code().String() + ": " + by.Message()
	}
	return status.Code(err).String() + ": " + status.Convert(err).Message()
}

// One line for each kind of call.
func callGRPC(client, ca, address string) {
	var by caller
	if client == "grpc-go" {
		connection := dial(ca, address)
		by = byGRPCGo(connection)
		fmt.Println("services", listServices(connection))
	} else {
		transport := &http3.Transport{TLSClientConfig: trusting(ca)}
		by = byConnectGo(&http.Client{Transport: transport}, "https://"+address)
	}
	background, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	for _, size := range []int{1, 3 << 20} {
		word := strings.Repeat("x", size)
		fmt.Println("upper", must(by.unary(background, upper, word)) == strings.ToUpper(word))
	}
	_, err := by.unary(background, fail, "word")
	fmt.Println("fail", code(err))
	_, err = by.unary(background, "/test.Words/None", "word")
	fmt.Println("none", strings.SplitN(code(err), ":", 2)[0])
	words, trailer, err := by.count(background, "one two three")
	fmt.Println("count", words, trailer, err)

	send, receive, end := by.chat(background)
	fmt.Println("chat", must(receive()))
	for n := range 100 {
		must(0, send(fmt.Sprint(n)))
		if answer := must(receive()); answer != fmt.Sprint(n) {
			panic(answer)
		}
	}
	must(0, end())
	_, err = receive()
	fmt.Println("end", errors.Is(err, io.EOF))

	short, stop := context.WithTimeout(background, 300*time.Millisecond)
	defer stop()
	_, err = by.unary(short, wait, "")
	fmt.Println("deadline", strings.SplitN(code(err), ":", 2)[0])
	cancelled, cancel := context.WithCancel(background)
	time.AfterFunc(300*time.Millisecond, cancel)
	_, err = by.unary(cancelled, wait, "")
	fmt.Println("cancel", strings.SplitN(code(err), ":", 2)[0])
}

// Makes calls, sixteen at a time, and prints their number and the first failure.
func load(ca, address string, duration time.Duration) {
	by := byGRPCGo(dial(ca, address))
	var calls, failures atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(duration)
	for range 16 {
		group.Go(func() {
			for time.Now().Before(end) {
				if _, err := by.unary(context.Background(), upper, "word"); err != nil && failures.Add(1) == 1 {
					fmt.Println(code(err))
				}
				calls.Add(1)
			}
		})
	}
	group.Wait()
	fmt.Println("many", calls.Load() > 1000)
	fmt.Println("failures", failures.Load())
}

// Lists the server's services; none without reflection.
func listServices(connection *grpc.ClientConn) (names []string) {
	stream := must(reflectionpb.NewServerReflectionClient(connection).ServerReflectionInfo(context.Background()))
	request := &reflectionpb.ServerReflectionRequest_ListServices{}
	must(0, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: request}))
	answer, err := stream.Recv()
	if err != nil {
		return nil
	}
	for _, service := range answer.GetListServicesResponse().Service {
		names = append(names, service.Name)
	}
	return names
}
