package openai

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// DefaultTimeout is the limit for the first byte, and for the silence between
// bytes, when the config names none.
const DefaultTimeout = 60 * time.Second

// DefaultDataTimeout is the limit for nothing but keep-alives where [Config]
// says nothing else.
const DefaultDataTimeout = 10 * time.Minute

// Config says how to reach a provider. It is read once, by [New].
type Config struct {
	// BaseURL is what /chat/completions is appended to, such as
	// https://api.openai.com/v1. It holds no user and no password: they would
	// end up in error texts.
	BaseURL string
	// APIKey is sent as a bearer token; "" sends none. It is visible ASCII.
	// Nothing that the model says, logs or panics with has it in it.
	APIKey string
	// HTTPClient makes the calls. Nil means a client of the model's own, which
	// is released by [Model.Close]. With either, no redirect is followed. A
	// client with a total timeout kills long answers.
	HTTPClient *http.Client
	// Logger gets one line per call, without any content. Nil logs nothing.
	Logger *slog.Logger
	// FirstByteTimeout limits the wait for the first byte of the answer's
	// body, connecting included. 0 means [DefaultTimeout], a negative one no
	// limit but DataTimeout.
	FirstByteTimeout time.Duration
	// IdleTimeout limits the silence between two bytes; keep-alives count as
	// bytes. 0 and negative as for FirstByteTimeout. There is no limit on the
	// whole answer.
	IdleTimeout time.Duration
	// DataTimeout limits the wait for data, whether keep-alives come, which show
	// that something is there and not that it works, or nothing does: one that
	// is shorter than the limits above ends a silence too. 0 means
	// [DefaultDataTimeout], which is too short for a model that thinks for
	// longer and shows nothing of it; a negative one no limit: a gateway that
	// keeps alive what is dead then holds its run until someone cancels it.
	DataTimeout time.Duration
	// MaxTokens limits the length of an answer; 0 leaves that to the provider.
	MaxTokens int
	// Quirks are what is special about the provider's requests.
	Quirks Quirks
}

// Model is a [loop.ProviderModel] over one provider. It is safe for concurrent
// use.
type Model struct {
	endpoint  *wire.Endpoint
	maxTokens int
	quirks    Quirks
	names     wire.NameRule
}

var _ loop.ProviderModel = (*Model)(nil)

// New checks the config and returns the model. It makes no connection.
func New(cfg Config) (*Model, error) {
	u, err := wire.ParseURL(cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("openai: base URL: %w", err)
	}
	if !wire.ValidKey(cfg.APIKey) {
		return nil, errors.New("openai: API key: it has characters other than visible ASCII")
	}
	if cfg.MaxTokens < 0 {
		return nil, fmt.Errorf("openai: max tokens: %d is negative", cfg.MaxTokens)
	}
	names, err := cfg.Quirks.check()
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	return &Model{
		endpoint: wire.NewEndpoint(wire.Settings{
			URL: u.JoinPath("chat/completions"), APIKey: cfg.APIKey, Authorize: authorizer(cfg.APIKey),
			HTTPClient: cfg.HTTPClient, Logger: cfg.Logger,
			FirstByte: wire.Limit(cfg.FirstByteTimeout, DefaultTimeout),
			Idle:      wire.Limit(cfg.IdleTimeout, DefaultTimeout),
			Data:      wire.Limit(cfg.DataTimeout, DefaultDataTimeout),
		}),
		maxTokens: cfg.MaxTokens, quirks: cfg.Quirks, names: names,
	}, nil
}

// authorizer returns a function that adds the key to the header of a request.
func authorizer(apiKey string) func(http.Header) {
	return func(h http.Header) {
		if apiKey != "" {
			h.Set("Authorization", "Bearer "+apiKey)
		}
	}
}

// Close releases the idle connections of the model's own client. Calls under
// way are not touched. It does nothing for a client that was passed in.
func (m *Model) Close() { m.endpoint.Close() }

// Stream makes one call, as [Model.Send] does with what [Model.Request] gives.
func (m *Model) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		p, err := m.Request(req)
		if err != nil {
			yield(stream.Chunk{}, err)
			return
		}
		m.Send(ctx, req, p, nil)(yield)
	}
}

// Send makes one call with the headers and the body of p, and credentials. Of
// req it reads the names of the tools, to turn those of the answer back, and
// what is logged. A refusal by the provider, an error inside the stream,
// silence and a connection that was never made are yielded as
// [loop.ModelError]; an error of received, and the end of ctx, as they are. A
// connection that is lost in the middle ends the sequence, without a finish
// chunk unless the provider had named its finish reason before.
func (m *Model) Send(
	ctx context.Context, req loop.ModelRequest, p loop.ProviderRequest, received func(context.Context, loop.ProviderResponse) error,
) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		c := &call{Call: wire.Call{Endpoint: m.endpoint, Received: received, Yield: yield}, model: m}
		c.acc.names, _ = m.names.ToolNames(req) // Request has told the error
		c.Do(ctx, req, p, c)
	}
}
