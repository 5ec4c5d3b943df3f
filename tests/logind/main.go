// A stand-in for logind on a private bus: locks that hold the machine up, and the word that it goes down.
//
// SIGUSR1 says that the machine goes down, SIGUSR2 that it stays up. What happens is told on standard output, one line each.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

const (
	path      = "/org/freedesktop/login1"
	manager   = "org.freedesktop.login1.Manager"
	longDelay = uint64(600_000_000)
)

type logind struct{}

// Inhibit hands out one end of a pipe; the machine is held up for as long as anybody has it open.
func (logind) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	fmt.Printf("held %s %s %s\n", what, who, mode)
	go func() {
		syscall.Read(ends[0], make([]byte, 1))
		fmt.Println("released")
		syscall.Close(ends[0])
	}()
	// The library sends a copy; ours is closed once that must have happened.
	time.AfterFunc(300*time.Millisecond, func() { syscall.Close(ends[1]) })
	return dbus.UnixFD(ends[1]), nil
}

func main() {
	conn, err := dbus.ConnectSystemBus()
	check(err)
	properties := prop.Map{manager: {"InhibitDelayMaxUSec": {Value: longDelay, Emit: prop.EmitFalse}}}
	_, err = prop.Export(conn, path, properties)
	check(err)
	check(conn.Export(logind{}, path, manager))
	reply, err := conn.RequestName("org.freedesktop.login1", dbus.NameFlagDoNotQueue)
	check(err)
	if reply != dbus.RequestNameReplyPrimaryOwner {
		check(fmt.Errorf("somebody else is logind here: %v", reply))
	}
	said := make(chan os.Signal, 4)
	signal.Notify(said, syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Println("ready")
	for one := range said {
		check(conn.Emit(path, manager+".PrepareForShutdown", one == syscall.SIGUSR1))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
