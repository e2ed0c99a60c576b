package pluginhost

import (
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
)

// The files of a keeper, beside its standard ones: what the host says, and what it
// tells the host. Behind them is the lock that says that there is a keeper.
const (
	keeperControl = 3
	keeperStatus  = 4
)

// keepOrder is what a keeper is told: first what to start, then signals to send. The
// end of the file is the end of the host, and of the plugin.
type keepOrder struct {
	Path   string   `json:"path,omitempty"`
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir,omitempty"`
	Memory int64    `json:"memory,omitempty"`
	Signal int      `json:"signal,omitempty"`
}

// keepReport is what a keeper tells: that it has started the plugin, or why not, and
// that the plugin has ended. The end of the file is the end of all that the plugin
// had started, too.
type keepReport struct {
	PID    int    `json:"pid,omitempty"`
	Failed string `json:"failed,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Code   int    `json:"code,omitempty"`
	Signal int    `json:"signal,omitempty"`
}

// Keep is all that a keeper does; its result is for os.Exit. A program whose command
// line is in [Config.Keeper] calls it, from main's goroutine and before it starts
// anything.
//
// A keeper stands between the host and one process of a plugin, and sees to it that
// nothing stays: when the plugin ends, and when the host is gone, however it went, it
// ends all that the plugin has started, in whatever session and process group, and
// then itself. It can do so since the kernel hands it the children of those who are
// gone. Should it be killed itself, the kernel kills the plugin.
func Keep() int {
	// The kernel's promise to kill the plugin is bound to this thread.
	runtime.LockOSThread()
	// Its end is that of the host. Ignored signals would be ignored by the plugin too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	const fds = 1024 // more than a host that has inherited some hands on
	for fd := keeperControl; fd < fds; fd++ {
		syscall.CloseOnExec(fd)
	}
	adopt()
	k := &keeper{status: json.NewEncoder(os.NewFile(keeperStatus, "status"))}
	orders := json.NewDecoder(os.NewFile(keeperControl, "control"))
	var first keepOrder
	if err := orders.Decode(&first); err != nil {
		return 1 // there is no host any more
	}
	if err := k.start(first); err != nil {
		k.tell(keepReport{Failed: err.Error()})
		return 1
	}
	go k.obey(orders) // ends with the process
	k.reap()
	return 0
}

type keeper struct {
	status *json.Encoder
	plugin int
	// ending says that nothing is to stay.
	ending atomic.Bool
}

// tell reports to the host. If it is gone nobody has to know.
func (k *keeper) tell(r keepReport) { _ = k.status.Encode(r) }

func (k *keeper) start(o keepOrder) error {
	attr := &syscall.ProcAttr{Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: childAttr()}
	pid, err := limited(o.Memory, func() (int, error) {
		return syscall.ForkExec(o.Path, append([]string{o.Path}, o.Args...), attr)
	})
	if err != nil {
		return err
	}
	k.plugin = pid
	// What it prints has an end when nobody has it open any more.
	_, _ = dup2(0, 1), dup2(0, 2)
	k.tell(keepReport{PID: pid})
	return nil
}

// obey sends signals until the host is gone or ends the plugin.
func (k *keeper) obey(orders *json.Decoder) {
	for {
		var o keepOrder
		if err := orders.Decode(&o); err != nil {
			k.endAll()
			return
		}
		if !k.ending.Load() {
			_ = syscall.Kill(k.plugin, syscall.Signal(o.Signal)) // it may have gone
		}
	}
}

// endAll kills what there is. What becomes a child of this process later is killed
// when reap meets the end of its parent.
func (k *keeper) endAll() {
	k.ending.Store(true)
	_ = syscall.Kill(-k.plugin, syscall.SIGKILL) // they may have gone
	for _, pid := range children() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// reap waits for all that has this process as its parent, until there is nothing.
func (k *keeper) reap() {
	// Many may have died at once: what they leave is looked for behind the last.
	wait := 0
	for {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &s, wait, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return // there is none
		case pid == 0:
			if wait = 0; k.ending.Load() {
				k.endAll()
			}
			continue
		}
		wait = syscall.WNOHANG
		if pid == k.plugin && (s.Exited() || s.Signaled()) {
			r := keepReport{Ended: true}
			if s.Signaled() {
				r.Signal = int(s.Signal())
			} else {
				r.Code = s.ExitStatus()
			}
			k.ending.Store(true)
			k.tell(r)
		}
	}
}
