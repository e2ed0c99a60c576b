package plugin

import (
	"context"
	"net"
	"time"
)

// ServeOn serves a plugin in this process until it is stopped.
func ServeOn(c Config, l net.Listener) (stop func(), err error) {
	s, err := newService(c)
	if err != nil {
		return nil, err
	}
	server := newServer(newConns(time.Now()))
	s.register(server)
	go func() { _ = server.Serve(l) }() // ends with the listener
	return func() {
		server.Stop()
		s.close()
	}, nil
}

// Ready calls c's Ready as Serve does once the host knows the plugin.
func Ready(ctx context.Context, c Config) error {
	s, err := newService(c)
	if err != nil {
		return err
	}
	s.ready(ctx)
	return nil
}

// Left is left, of a plugin with n connections.
func Left(ctx context.Context, n int, parent func() int) <-chan struct{} {
	conns := newConns(time.Now())
	conns.n = n
	return left(ctx, conns, parent, abandonedTime)
}

// AbandonedTime is abandonedTime.
const AbandonedTime = abandonedTime
