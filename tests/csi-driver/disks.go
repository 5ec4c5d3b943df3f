package main

// Volumes with a device of their own: a file below -state/volumes, shown as a loop device. With a file system when a pod
// wants files (the volume's context says disk=true), raw when it wants the device.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const firstSize = 16 << 20

// How the kernel knows XFS, which grows without the capability that ext4 wants for it.
const xfs = 0x58465342

func image(id string) (string, error) {
	if id == "" || strings.Contains(id, "/") {
		return "", status.Error(codes.InvalidArgument, "no volume id")
	}
	directory := filepath.Join(*state, "volumes")
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	return filepath.Join(directory, id+".img"), nil
}

func isDisk(capability *csi.VolumeCapability, context map[string]string) bool {
	return capability.GetBlock() != nil || context["disk"] == "true"
}

func run(program string, words ...string) (string, error) {
	output, err := exec.Command(program, words...).CombinedOutput()
	if err != nil {
		return "", status.Errorf(codes.Internal, "%s %s: %v: %s", program, strings.Join(words, " "), err, output)
	}
	return strings.TrimSpace(string(output)), nil
}

// attach makes the volume's file a device, once, and answers with it.
func attach(id string, context map[string]string) (string, error) {
	file, err := image(id)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(file); os.IsNotExist(err) {
		size := int64(firstSize)
		if asked, err := strconv.ParseInt(context["size"], 10, 64); err == nil {
			size = asked
		}
		made, err := os.Create(file)
		if err != nil {
			return "", status.Error(codes.Internal, err.Error())
		}
		made.Truncate(size)
		made.Close()
	}
	if device := known(file); device != "" {
		return device, nil
	}
	return run("losetup", "-f", "--show", file)
}

// known is the device of a file, or nothing.
func known(file string) string {
	output, err := run("losetup", "-n", "-O", "NAME", "-j", file)
	if err != nil {
		return ""
	}
	for _, line := range strings.Fields(output) {
		return line
	}
	return ""
}

func detach(id string) error {
	file, err := image(id)
	if err != nil {
		return err
	}
	if device := known(file); device != "" {
		_, err = run("losetup", "-d", device)
	}
	return err
}

// mountDisk makes a file system where there is none and mounts it.
func mountDisk(device, target, kind string) error {
	if kind == "" {
		kind = "ext4"
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if isMounted(target) {
		return nil
	}
	if _, err := run("blkid", "-p", device); err != nil {
		force := "-F"
		if kind == "xfs" {
			force = "-f"
		}
		if _, err := run("mkfs."+kind, "-q", force, device); err != nil {
			return err
		}
	}
	if err := syscall.Mount(device, target, kind, 0, ""); err != nil {
		return status.Errorf(codes.Internal, "mount %s at %s: %v", device, target, err)
	}
	return nil
}

// showDevice puts the device itself at a path, as a file that it is bound to.
func showDevice(device, target string) error {
	made, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	made.Close()
	if isMounted(target) {
		return nil
	}
	if err := syscall.Mount(device, target, "", syscall.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "bind %s to %s: %v", device, target, err)
	}
	return nil
}

// grow makes the volume as large as it is wanted; what is mounted grows with it.
func grow(id, path string, bytes int64) error {
	file, err := image(id)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		// A directory has no size.
		return nil
	}
	if info.Size() < bytes {
		if err := os.Truncate(file, bytes); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	device := known(file)
	if device == "" {
		return status.Error(codes.FailedPrecondition, "it has no device")
	}
	if _, err := run("losetup", "-c", device); err != nil {
		return err
	}
	at, err := os.Stat(path)
	if err != nil || !at.IsDir() {
		return nil
	}
	var room syscall.Statfs_t
	if err := syscall.Statfs(path, &room); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if room.Type == xfs {
		_, err = run("xfs_growfs", path)
		return err
	}
	_, err = run("resize2fs", device)
	return err
}

// usage of what stands at a path.
func usage(id, path string) ([]*csi.VolumeUsage, error) {
	at, err := os.Stat(path)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if !at.IsDir() {
		file, err := image(id)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, status.Error(codes.NotFound, err.Error())
		}
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: info.Size()}}, nil
	}
	var room syscall.Statfs_t
	if err := syscall.Statfs(path, &room); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	block := room.Bsize
	return []*csi.VolumeUsage{
		{
			Unit:      csi.VolumeUsage_BYTES,
			Available: int64(room.Bavail) * block,
			Total:     int64(room.Blocks) * block,
			Used:      int64(room.Blocks-room.Bfree) * block,
		},
		{
			Unit:      csi.VolumeUsage_INODES,
			Available: int64(room.Ffree),
			Total:     int64(room.Files),
			Used:      int64(room.Files - room.Ffree),
		},
	}, nil
}
