package scripted

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// pollFile is how often a wait_file step looks: nothing tells another process
// that a file has appeared.
const pollFile = 10 * time.Millisecond

// player plays one answer to one consumer.
type player struct {
	opts    Options
	attempt int
	values  values
	yield   func(stream.Chunk, error) bool

	lane      stream.Lane
	blocks    int
	toolCalls int
}

// play yields the steps in order, and the finish that an answer has when it
// names none.
func (p *player) play(ctx context.Context, steps []step) {
	for _, s := range steps {
		if s.Attempt != 0 && s.Attempt != p.attempt {
			continue
		}
		// A cancelled call ends here even if no step blocks.
		err := ctx.Err()
		more := true
		if err == nil {
			more, err = p.step(ctx, s)
		}
		if err != nil {
			p.yield(stream.Chunk{}, err)
			return
		}
		if !more || s.ends() {
			return
		}
	}
	p.finish(finishStep{})
}

// step plays one step. more is false when the consumer has stopped.
func (p *player) step(ctx context.Context, s step) (more bool, err error) {
	switch {
	case s.Text != nil:
		return p.stream(ctx, s, stream.LaneText, p.values.expand(*s.Text))
	case s.Reasoning != nil:
		return p.stream(ctx, s, stream.LaneReasoning, p.values.expand(*s.Reasoning))
	case s.Tool != nil:
		return p.tool(ctx, s)
	case s.Delay > 0:
		return true, sleep(ctx, time.Duration(s.Delay))
	case s.Wait != "":
		return true, p.wait(ctx, s.Wait)
	case s.WaitFile != "":
		return true, waitFile(ctx, s.WaitFile)
	case s.Stall:
		<-ctx.Done()
		return false, ctx.Err()
	case s.Fail != nil:
		return false, &loop.ModelError{
			Status: s.Fail.Status, Code: s.Fail.Code, Message: s.Fail.Message, Retryable: s.Fail.Retryable,
		}
	case s.Finish != nil:
		p.finish(*s.Finish)
	}
	return true, nil
}

// stream yields text in pieces. Text of one lane that follows text of the
// same lane continues its block.
func (p *player) stream(ctx context.Context, s step, lane stream.Lane, text string) (more bool, err error) {
	if p.lane != lane {
		p.open(lane)
	}
	id := p.blockID()
	for i, piece := range s.Split.pieces(text) {
		if i > 0 && s.Every > 0 {
			if err := sleep(ctx, time.Duration(s.Every)); err != nil {
				return false, err
			}
		}
		if !p.yield(stream.Chunk{Kind: stream.KindDelta, Lane: lane, BlockID: id, Text: piece}, nil) {
			return false, nil
		}
	}
	return true, nil
}

func (p *player) tool(ctx context.Context, s step) (more bool, err error) {
	p.open(stream.LaneToolArguments)
	p.toolCalls++
	call := stream.CallStart{ProviderID: s.Tool.ID, Name: s.Tool.Name}
	if !p.yield(stream.Chunk{Kind: stream.KindToolCall, BlockID: p.blockID(), Call: call}, nil) {
		return false, nil
	}
	return p.stream(ctx, s, stream.LaneToolArguments, s.Tool.text(p.values))
}

func (p *player) open(lane stream.Lane) {
	p.lane = lane
	p.blocks++
}

func (p *player) blockID() string { return strconv.Itoa(p.blocks) }

func (p *player) finish(f finishStep) {
	reason := f.Reason
	if reason == "" {
		reason = stream.FinishStop
		if p.toolCalls > 0 {
			reason = stream.FinishToolCalls
		}
	}
	raw := f.Raw
	if raw == "" && reason != stream.FinishUnknown {
		raw = string(reason)
	}
	p.yield(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{
		Reason: reason, Raw: raw,
		Usage: stream.Usage{InputTokens: f.InputTokens, OutputTokens: f.OutputTokens},
	}}, nil)
}

func (p *player) wait(ctx context.Context, name string) error {
	if p.opts.Wait == nil {
		return &loop.ModelError{Code: "no_wait", Message: "the script waits for " + name + ", and the model was made without a Wait"}
	}
	return p.opts.Wait(ctx, name)
}

func waitFile(ctx context.Context, path string) error {
	ticker := time.NewTicker(pollFile)
	defer ticker.Stop()
	for {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return &loop.ModelError{Code: "wait_file", Message: "the file that the script waits for cannot be looked at", Err: err}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
