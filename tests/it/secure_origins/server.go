// A server by net/http that wants certificates of its clients.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		panic(err)
	}
	ca, err := os.ReadFile(os.Args[3])
	if err != nil {
		panic(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	http.HandleFunc("/length", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		io.WriteString(w, strings.Repeat("x", 100000))
	})
	http.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		length, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, length)
	})
	http.HandleFunc("/close", func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		buffered.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + strings.Repeat("x", 100000))
		buffered.Flush()
		connection.Close()
	})
	http.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer connection.Close()
		buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		buffered.Flush()
		io.Copy(connection, buffered)
		io.WriteString(connection, "bye")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port, "listening")
	server := &http.Server{TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
	}}
	panic(server.ServeTLS(listener, "", ""))
}
