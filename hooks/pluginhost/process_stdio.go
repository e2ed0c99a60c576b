package pluginhost

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// stdioMethod is where go-plugin sends what a plugin prints behind the handshake. It
// waits with that until somebody reads it. Plugins with our SDK print to their own files
// from Bootstrap on; those with go-plugin alone, or an older SDK, never do.
const stdioMethod = "/plugin.GRPCStdio/StreamStdio"

// The fields of its messages, and what is in the first.
const (
	stdioChannel = 1
	stdioData    = 2
	stdioStderr  = 2
)

// maxStdio bounds one message, of which go-plugin sends up to 1 KiB, in bytes.
const maxStdio = 64 << 10

// readStdio reads it, if there is such a thing, until the connection is closed.
func (p *Process) readStdio() {
	stdout, stderr := p.run.printed.stream("stdout"), p.run.printed.stream("stderr")
	p.stdio.Go(func() {
		stream, err := p.conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, stdioMethod, grpc.MaxCallRecvMsgSize(maxStdio), grpc.WaitForReady(true))
		if err != nil {
			return // the connection was closed
		}
		if stream.SendMsg(&emptypb.Empty{}) != nil || stream.CloseSend() != nil {
			return // what is wrong is told by others
		}
		for {
			// The message's type is none of ours: all its fields are unknown.
			m := &emptypb.Empty{}
			if err := stream.RecvMsg(m); err != nil {
				return // the plugin has no such thing, or is gone
			}
			to, data := stdout, []byte(nil)
			for raw := []byte(m.ProtoReflect().GetUnknown()); len(raw) > 0; {
				number, kind, n := protowire.ConsumeTag(raw)
				size := protowire.ConsumeFieldValue(number, kind, raw[n:])
				value := raw[n : n+size] // it was parsed before
				switch {
				case number == stdioChannel && kind == protowire.VarintType:
					if channel, _ := protowire.ConsumeVarint(value); channel == stdioStderr {
						to = stderr
					}
				case number == stdioData && kind == protowire.BytesType:
					data, _ = protowire.ConsumeBytes(value)
				}
				raw = raw[n+size:]
			}
			_, _ = to.Write(data) // it has no errors
		}
	})
}
