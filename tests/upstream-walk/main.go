// What upstream's kubelet does to a volume for fsGroup, system call by system call, to be timed against ours: one thread,
// every name from the root of the file system, three calls for each entry whether they change anything or not, the top last.
//
//	upstream-walk GROUP DIRECTORY    prints the milliseconds it took
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func give(path string, group int, info os.FileInfo) {
	os.Lchown(path, -1, group)
	if info.Mode()&os.ModeSymlink != 0 {
		return
	}
	bits := os.FileMode(0o660)
	if info.IsDir() {
		bits |= os.ModeSetgid | 0o110
	}
	os.Chmod(path, info.Mode()|bits)
}

func walk(path string, group int, info os.FileInfo) error {
	if info.IsDir() {
		directory, err := os.Open(path)
		if err != nil {
			return err
		}
		names, err := directory.Readdirnames(-1)
		directory.Close()
		if err != nil {
			return err
		}
		for _, name := range names {
			entry := filepath.Join(path, name)
			found, err := os.Lstat(entry)
			if err != nil {
				return err
			}
			if err := walk(entry, group, found); err != nil {
				return err
			}
		}
	}
	give(path, group, info)
	return nil
}

func main() {
	group, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	began := time.Now()
	info, err := os.Lstat(os.Args[2])
	if err == nil {
		err = walk(os.Args[2], group, info)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%.3f\n", float64(time.Since(began).Microseconds())/1000)
}
