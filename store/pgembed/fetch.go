package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const mavenCentral = "https://repo1.maven.org/maven2"

// fetchable maps a major version to the release that is fetched for it.
var fetchable = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const newClusterMajor = 17

// fetch returns binaries from the cache, downloading them first if need be.
// The library is used for nothing else: its servers outlive us.
func (h host) fetch(ctx context.Context, acct account, l layout, want int, logger *slog.Logger) (binaries, error) {
	if want == 0 {
		want = newClusterMajor
	}
	version, ok := fetchable[want]
	if !ok {
		return binaries{}, fmt.Errorf("no binaries of version %d to fetch", want)
	}
	cache := h.cache(acct, l)
	home := filepath.Join(cache, string(version))
	if b, err := inspectBinaries(ctx, filepath.Join(home, "bin"), acct); err == nil {
		return b, nil
	}
	logger.Info("no Postgres is installed: fetching one", "version", version, "into", home, "limit", h.fetchLimit)
	if err := h.download(ctx, version, cache, home); err != nil {
		return binaries{}, fmt.Errorf("fetch Postgres %s: %w", version, err)
	}
	return inspectBinaries(ctx, filepath.Join(home, "bin"), acct)
}

// cache is a directory that the user whom Postgres runs as can enter, which
// root's own cache directory is not.
func (h host) cache(acct account, l layout) string {
	if h.cacheDir != "" {
		return h.cacheDir
	}
	if acct.drop {
		return "/var/cache/agentd/postgres"
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "agentd", "postgres")
	}
	return l.data + ".bin"
}

// download unpacks into a directory of its own and renames the result, so that
// what is in the cache is complete. Another process may be quicker; then its
// result stays.
func (h host) download(ctx context.Context, version embeddedpostgres.PostgresVersion, cache, home string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, h.fetchLimit)
	defer cancel()
	if err := mkdirOpen(cache); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	relay, err := startRelay(ctx, h.repository)
	if err != nil {
		return err
	}
	unpacked := filepath.Join(tmp, "postgres")
	libraryErr := unpack(relay.url, version, tmp, unpacked)
	if err := relay.stop(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("gave up after %s: %w", h.fetchLimit, err)
	}
	if !executable(filepath.Join(unpacked, "bin", "postgres")) {
		return libraryErr
	}
	if err := os.Rename(unpacked, home); err != nil && !executable(filepath.Join(home, "bin", "postgres")) {
		return err
	}
	return nil
}

// unpack makes the library fetch and unpack, and stops it there: it has no
// call for that, but a data path that ends in "." cannot be removed, which it
// tries before it runs initdb. So it always returns an error. It leaves an
// empty file embedded_postgres_log* in the temporary directory.
func unpack(repository string, version embeddedpostgres.PostgresVersion, tmp, unpacked string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		BinaryRepositoryURL(repository).
		CachePath(filepath.Join(tmp, "archive")).
		RuntimePath(filepath.Join(tmp, "runtime")).
		BinariesPath(unpacked).
		DataPath(filepath.Join(tmp, "data") + "/.").
		Logger(io.Discard))
	err = server.Start()
	if err == nil {
		err = errors.Join(errors.New("the library started a server of its own"), server.Stop())
	}
	return err
}

// relay is a loopback server in front of the repository. The library downloads
// without a context or a limit, and it does not mind a missing checksum; through
// the relay both are ours: ending ctx ends the transfer, and any answer but
// 200 is an error.
type relay struct {
	url    string
	server *http.Server
	done   chan error

	mu  sync.Mutex
	err error
}

func startRelay(ctx context.Context, repository string) (*relay, error) {
	target, err := url.Parse(repository)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // std's own type
	r := &relay{url: "http://" + listener.Addr().String(), done: make(chan error, 1)}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(pr *httputil.ProxyRequest) { pr.SetURL(target) },
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", resp.Request.URL, resp.Status)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			r.fail(err)
			w.WriteHeader(http.StatusBadGateway)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	r.server = &http.Server{
		Handler:           proxy,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		err := r.server.Serve(listener)
		transport.CloseIdleConnections()
		r.done <- err
	}()
	return r, nil
}

func (r *relay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// stop ends the server and returns what went wrong with any transfer.
func (r *relay) stop() error {
	closeErr := r.server.Close()
	if err := <-r.done; !errors.Is(err, http.ErrServerClosed) {
		closeErr = errors.Join(closeErr, err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // the library's side
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, closeErr)
}
