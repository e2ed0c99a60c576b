package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// listen opens the port of the front doors. Without a key everybody who can
// connect may do everything, so then it must be a loopback address.
func listen(ctx context.Context, address string, guarded bool) (net.Listener, error) {
	if !guarded && !loopback(address) {
		return nil, fmt.Errorf("without an API key agentd listens on this machine only, and %s is not a loopback address: set AGENTD_API_KEY or AGENTD_API_KEY_FILE, or listen on 127.0.0.1:8080", address)
	}
	return listenAt(ctx, address, "--listen", "AGENTD_LISTEN")
}

// listenAt opens a port that a flag or a variable has named.
func listenAt(ctx context.Context, address, flag, variable string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another program: stop that one, or choose another port with %s %s or %s", address, flag, otherPort(address), variable)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// loopback reports whether an address can be reached from this machine only. A
// name other than localhost may mean anything tomorrow.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// otherPort is an address to suggest beside a busy one.
func otherPort(busy string) string {
	host, port, err := net.SplitHostPort(busy)
	if err != nil || port == "8081" {
		return "127.0.0.1:8082"
	}
	return net.JoinHostPort(host, "8081")
}

// localURL is where a client on this machine finds the listener.
func localURL(listener net.Listener) string {
	address := listener.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
