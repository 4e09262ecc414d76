// The interop run of HTTP/3 with quic-go: main ADDRESS:PORT FOLDER. See scripts/http3-interop.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const megabyte = 1 << 20

func main() {
	address, folder := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	transport := listen()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}, ServerName: "localhost"}
	server, err := net.ResolveUDPAddr("udp", address)
	check("resolve", err)
	connection, err := transport.Dial(ctx, server, config, &quic.Config{})
	check("dial", err)
	client := (&http3.Transport{}).NewClientConn(connection)
	url := "https://" + address

	call := func(name, method, path string, body io.Reader) []byte {
		request, err := http.NewRequestWithContext(ctx, method, url+path, body)
		check(name, err)
		response, err := client.RoundTrip(request)
		check(name, err)
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		check(name, err)
		if response.StatusCode != 200 {
			check(name, fmt.Errorf("status %d", response.StatusCode))
		}
		return content
	}

	expect("GET", string(call("GET", "GET", "/protocol.php", nil)), "HTTP/3.0")
	upload := make([]byte, 64*megabyte)
	rand.Read(upload)
	began := time.Now()
	digest := fmt.Sprintf("%x", sha256.Sum256(upload))
	expect("upload of 64 MiB", string(call("upload", "POST", "/hash.php", bytes.NewReader(upload))), digest)
	fmt.Printf("     %.0f MB/s\n", 64*1.048576/time.Since(began).Seconds())
	file, err := os.ReadFile(filepath.Join(folder, "large.bin"))
	check("large.bin", err)
	began = time.Now()
	content := call("download", "GET", "/large.bin", nil)
	expect("download of 64 MiB", fmt.Sprintf("%x", sha256.Sum256(content)), fmt.Sprintf("%x", sha256.Sum256(file)))
	fmt.Printf("     %.0f MB/s\n", 64*1.048576/time.Since(began).Seconds())

	var group sync.WaitGroup
	failed := make(chan error, 500)
	for range 500 {
		group.Go(func() {
			request, _ := http.NewRequestWithContext(ctx, "GET", url+"/protocol.php", nil)
			response, err := client.RoundTrip(request)
			if err != nil {
				failed <- err
				return
			}
			defer response.Body.Close()
			content, err := io.ReadAll(response.Body)
			if err != nil || string(content) != "HTTP/3.0" {
				failed <- fmt.Errorf("%q, %w", content, err)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		check("500 requests at once", err)
	default:
		fmt.Println("ok   500 requests at once")
	}

	for range 20 {
		part, stop := context.WithCancel(ctx)
		request, _ := http.NewRequestWithContext(part, "GET", url+"/large.bin", nil)
		response, err := client.RoundTrip(request)
		check("reset", err)
		_, err = io.CopyN(io.Discard, response.Body, 100_000)
		check("reset", err)
		stop()
		response.Body.Close()
	}
	expect("after 20 downloads were reset", string(call("reset", "GET", "/protocol.php", nil)), "HTTP/3.0")
	reader, writer := io.Pipe()
	go func() {
		writer.Write(upload[:megabyte])
		writer.CloseWithError(errors.New("given up"))
	}()
	request, _ := http.NewRequestWithContext(ctx, "POST", url+"/hash.php", reader)
	if response, err := client.RoundTrip(request); err == nil && response.StatusCode != 400 {
		check("an upload that is given up", fmt.Errorf("status %d", response.StatusCode))
	}
	expect("after an upload was given up", string(call("reset", "GET", "/protocol.php", nil)), "HTTP/3.0")

	// The next requests have another address, and a download goes on while it changes.
	before := string(call("migration", "GET", "/port.php", nil))
	request, _ = http.NewRequestWithContext(ctx, "GET", url+"/large.bin", nil)
	response, err := client.RoundTrip(request)
	check("migration", err)
	hash := sha256.New()
	_, err = io.CopyN(hash, response.Body, megabyte)
	check("migration", err)
	path, err := connection.AddPath(listen())
	check("migration: another path", err)
	check("migration: probing it", path.Probe(ctx))
	check("migration: switching to it", path.Switch())
	_, err = io.Copy(hash, response.Body)
	check("migration: the rest of a download", err)
	expect("a download during a migration", fmt.Sprintf("%x", hash.Sum(nil)), fmt.Sprintf("%x", sha256.Sum256(file)))
	after := string(call("migration", "GET", "/port.php", nil))
	if before == after {
		check("migration", errors.New("the address is the same"))
	}
	fmt.Println("ok   migration from port", before, "to", after)
	connection.CloseWithError(0x100, "")
}

func listen() *quic.Transport {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check("socket", err)
	return &quic.Transport{Conn: socket}
}

func expect(name, found, wanted string) {
	if found != wanted {
		check(name, fmt.Errorf("found %.100q, not %.100q", found, wanted))
	}
	fmt.Println("ok  ", name)
}

func check(name string, err error) {
	if err != nil {
		fmt.Println("FAIL", name+":", err)
		os.Exit(1)
	}
}
