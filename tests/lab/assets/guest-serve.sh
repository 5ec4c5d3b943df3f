# Run by systemd in a virtual machine (tests/lab/src/vm): runs /guest/command with its output on the second serial
# line, tells how it ended, and switches the machine off unless the command did that.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/guest/bin
busybox=/usr/bin/busybox
$busybox mkdir -p /guest/bin
$busybox --install -s /guest/bin
ip link set lo up

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
if [ "$(systemctl is-system-running)" != stopping ]; then
    systemctl --force --force poweroff
fi
