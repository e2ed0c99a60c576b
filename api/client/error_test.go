package client

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

func TestWhichErrorsPass(t *testing.T) {
	t.Parallel()
	_, notUTF8 := proto.Marshal(&agentdv1.StartRunRequest{Text: "\xff"})
	for err, want := range map[error]bool{
		errors.New("not of a call"):                                                                                         false,
		connect.NewError(connect.CodeUnauthenticated, nil):                                                                  false,
		connect.NewError(connect.CodeUnimplemented, nil):                                                                    false,
		connect.NewError(connect.CodeUnavailable, nil):                                                                      true,
		connect.NewError(connect.CodeInvalidArgument, nil):                                                                  true, // a broken connection, not an answer
		connect.NewError(connect.CodeInternal, nil):                                                                         false,
		connect.NewError(connect.CodeUnknown, errors.New(`invalid content-type: "text/html"`)):                              false, // no agentd
		connect.NewError(connect.CodeInternal, fmt.Errorf("marshal message: %w", notUTF8)):                                  false,
		connect.NewError(connect.CodeInternal, fmt.Errorf("protocol error: %w", io.ErrUnexpectedEOF)):                       true,
		connect.NewError(connect.CodeInternal, io.EOF):                                                                      true,
		connect.NewError(connect.CodeUnknown, fmt.Errorf("read message: %w", syscall.ECONNRESET)):                           true,
		connect.NewError(connect.CodeInternal, errors.New("stream error: stream ID 1; INTERNAL_ERROR; received from peer")): true,
		connect.NewWireError(connect.CodeUnknown, nil):                                                                      true,
		connect.NewWireError(connect.CodeInvalidArgument, errors.New("x")):                                                  false,
		connect.NewWireError(connect.CodeOutOfRange, errors.New("x")):                                                       false,
		connect.NewWireError(connect.CodeInternal, errors.New("x")):                                                         true,
		connect.NewWireError(connect.CodeAborted, errors.New("x")):                                                          false,
	} {
		if got := passes(err); got != want {
			t.Errorf("passes(%v) = %v", err, got)
		}
	}
	for reason, want := range map[string]bool{"conflict": true, "session_busy": false, "already_decided": false} {
		detail, err := connect.NewErrorDetail(&agentdv1.ErrorReason{Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		refused := connect.NewWireError(connect.CodeAborted, errors.New("no"))
		refused.AddDetail(detail)
		if passes(refused) != want {
			t.Errorf("%s passes: %t, want %t", reason, !want, want)
		}
	}
}
