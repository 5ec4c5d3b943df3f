#!/bin/busybox sh
# The first process of a virtual machine (tests/lab/src/vm): makes a Linux of what the kernel gives, runs
# /guest/command with its output on the second serial line, tells how it ended, and switches the machine off.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/guest/bin

if [ "$1" != again ]; then
    /bin/busybox mkdir -p /proc /sys /dev /run /tmp /var/log /guest/bin /guest/root
    /bin/busybox --install -s /guest/bin
    # The very first root cannot be pivoted away from, which runc wants; the same files mounted once more can.
    mount --bind / /guest/root
    cd /guest/root || exit
    mount --move . /
    exec chroot . /guest/init again
fi

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs run /run
for module in /guest/modules/*; do
    insmod "$module"
done
# What the job brought to /tmp stays there: a checkout may lie below it.
mkdir -p /guest/tmp
mount -t tmpfs -o mode=1777 tmp /guest/tmp
cp -a /tmp/. /guest/tmp/
mount --move /guest/tmp /tmp
mount --make-rshared /
hostname guest
ip link set lo up

# Like a service on a real node, the command has a cgroup of its own: the top has no files for limits.
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
mkdir /sys/fs/cgroup/guest
echo $$ >/sys/fs/cgroup/guest/cgroup.procs

# Shortly before the bench loses its patience, what runs is told; silence then means that the machine itself stands still.
(
    sleep "$(cat /guest/patience)"
    echo "still running:"
    for process in /proc/[0-9]*; do
        [ -s "$process/cmdline" ] || continue
        echo "$(tr '\0' ' ' <"$process/cmdline"): $(cat "$process/wchan")"
    done
) >/dev/ttyS1 2>/dev/null &

# A standard input that never ends, because its end means "stop" to the bench.
mkfifo /guest/silence
/guest/command <>/guest/silence >/dev/ttyS1 2>&1
echo "
ferrolet-guest ended with $?" >/dev/ttyS1
sync
poweroff -f
