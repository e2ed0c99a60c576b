package pluginhost

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// peers are the credentials of those who call the host: the kernel says which process
// has connected. A token alone may have come from another plugin.
type peers struct {
	credentials.TransportCredentials
}

func newPeers() credentials.TransportCredentials { return peers{insecure.NewCredentials()} }

// ServerHandshake implements credentials.TransportCredentials.
func (p peers) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := p.TransportCredentials.ServerHandshake(conn)
	return out, lineage{info, ancestors(conn)}, err
}

// Clone implements credentials.TransportCredentials.
func (p peers) Clone() credentials.TransportCredentials {
	return peers{p.TransportCredentials.Clone()}
}

// lineage is the process that has connected, and those that it comes from.
type lineage struct {
	credentials.AuthInfo
	pids []int
}

// from says whether a call comes from that process of a plugin, or from one that this
// has started: all of them have its keeper as an ancestor. Where there is no keeper, or
// nobody says who calls, it does.
func (s *Service) from(ctx context.Context, process int64) bool {
	s.mu.Lock()
	keeper := s.keepers[process]
	s.mu.Unlock()
	p, ok := peer.FromContext(ctx)
	if !ok || keeper == 0 {
		return true
	}
	l, ok := p.AuthInfo.(lineage)
	if !ok || l.pids == nil {
		return true
	}
	for _, pid := range l.pids {
		if pid == keeper {
			return true
		}
	}
	return false
}
