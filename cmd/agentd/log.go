package main

import (
	"fmt"
	"io"
	"log/slog"
)

// logFlags say how a process logs. Log lines go to stderr.
type logFlags struct {
	LogFormat string `enum:"text,json" default:"text" env:"AGENTD_LOG_FORMAT" help:"Log as text or json."`
	LogLevel  string `enum:",debug,info,warn,error" default:"" env:"AGENTD_LOG_LEVEL" help:"Log from this level on: debug, info, warn or error."`
}

// logger returns a logger from fallback on, unless a level is configured.
func (f logFlags) logger(w io.Writer, fallback slog.Level) (*slog.Logger, error) {
	level := fallback
	if f.LogLevel != "" {
		if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
			return nil, fmt.Errorf("log level: %w", err)
		}
	}
	options := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}
