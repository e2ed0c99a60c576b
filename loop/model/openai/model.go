package openai

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// DefaultTimeout is the limit for the first byte, and for the silence between
// bytes, when the config names none.
const DefaultTimeout = 60 * time.Second

// Config says how to reach a provider. It is read once, by [New].
type Config struct {
	// BaseURL is what /chat/completions is appended to, such as
	// https://api.openai.com/v1. It holds no user and no password: they would
	// end up in error texts.
	BaseURL string
	// APIKey is sent as a bearer token; "" sends none.
	APIKey string
	// HTTPClient makes the calls. Nil means a client of the model's own, which
	// follows no redirect and is released by [Model.Close]. A client with a
	// total timeout kills long answers.
	HTTPClient *http.Client
	// Logger gets one line per call, without any content. Nil logs nothing.
	Logger *slog.Logger
	// FirstByteTimeout limits the wait for the first byte of the answer's
	// body, connecting included. 0 means [DefaultTimeout], a negative one no
	// limit: a silent provider then holds its run until someone cancels it.
	FirstByteTimeout time.Duration
	// IdleTimeout limits the silence between two bytes; keep-alives count as
	// bytes. 0 and negative as for FirstByteTimeout. There is no limit on the
	// whole answer.
	IdleTimeout time.Duration
	// NoStreamUsage leaves out stream_options.include_usage, for providers
	// that refuse a request with it. Usage is then usually not reported.
	NoStreamUsage bool
}

// Model is a [loop.Model] over one provider. It is safe for concurrent use.
type Model struct {
	url       string
	apiKey    string
	client    *http.Client
	owned     bool
	log       *slog.Logger
	firstByte time.Duration
	idle      time.Duration
	usage     bool
}

var _ loop.Model = (*Model)(nil)

// New checks the config and returns the model. It makes no connection.
func New(cfg Config) (*Model, error) {
	u, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil:
		// The parser's error repeats the whole text, and with it any password.
		return nil, errors.New("openai: base URL: not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("openai: base URL: must begin with http:// or https:// and name a host")
	case u.User != nil:
		return nil, errors.New("openai: base URL: must not hold a user or password, use the API key")
	}
	m := &Model{
		url:       u.JoinPath("chat/completions").String(),
		apiKey:    cfg.APIKey,
		client:    cfg.HTTPClient,
		log:       cfg.Logger,
		firstByte: limit(cfg.FirstByteTimeout),
		idle:      limit(cfg.IdleTimeout),
		usage:     !cfg.NoStreamUsage,
	}
	if m.client == nil {
		m.client, m.owned = ownClient(), true
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	return m, nil
}

// limit turns a configured timeout into a limit; 0 stands for none.
func limit(d time.Duration) time.Duration {
	switch {
	case d == 0:
		return DefaultTimeout
	case d < 0:
		return 0
	}
	return d
}

func ownClient() *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 64, // many streams to one host end at once; 2 would throw most connections away
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	return &http.Client{
		Transport: transport,
		// A redirect would carry the conversation to a host that nobody chose.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close releases the idle connections of the model's own client. Calls under
// way are not touched. It does nothing for a client that was passed in.
func (m *Model) Close() {
	if m.owned {
		m.client.CloseIdleConnections()
	}
}

// Stream makes one call. A refusal by the provider, an error inside the
// stream, silence and a connection that was never made are yielded as
// [loop.ModelError]; the end of ctx as its error. A connection that is lost
// in the middle ends the sequence, without a finish chunk unless the provider
// had named its finish reason before.
func (m *Model) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		c := &call{model: m, yield: yield}
		start := time.Now()
		err := c.run(ctx, req)
		m.log.LogAttrs(ctx, slog.LevelDebug, "model call ended",
			slog.String("session", req.SessionID), slog.String("run", req.RunID),
			slog.Int("turn", req.Turn), slog.Int("attempt", req.Attempt),
			slog.String("model", req.Model), slog.Int("status", c.status),
			slog.String("outcome", c.outcome(err)), slog.Duration("took", time.Since(start)))
		if err != nil && !c.stopped {
			yield(stream.Chunk{}, err)
		}
	}
}
