#!/bin/busybox sh
# The first process of a virtual machine with systemd (tests/lab/src/vm): lays what the job brings over the system on
# the disk and hands over to systemd, which starts /guest/serve.

/bin/busybox mkdir -p /proc /dev /guest/bin /guest/disk /guest/luggage /guest/root
/bin/busybox --install -s /guest/bin
export PATH=/guest/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in /guest/modules/*; do
    insmod "$module"
done
mount -t ext4 /dev/vda /guest/disk
mount -t ext4 -o ro /dev/vdb /guest/luggage
mkdir -p /guest/disk/upper /guest/disk/work /guest/disk/tmp
chmod 1777 /guest/disk/tmp
mount -t overlay -o lowerdir=/guest/luggage:/guest/disk/debian,upperdir=/guest/disk/upper,workdir=/guest/disk/work root /guest/root
# Containers' layers cannot lie on an overlay. What the job brought to /tmp stays there: a checkout may lie below it.
if [ -d /guest/luggage/tmp ]; then
    cp -a /guest/luggage/tmp/. /guest/disk/tmp/
fi
mount --bind /guest/disk/tmp /guest/root/tmp
umount /proc
mount --move /dev /guest/root/dev
cd /guest/root || exit
mount --move . /
exec chroot . /sbin/init </dev/console >/dev/console 2>&1
