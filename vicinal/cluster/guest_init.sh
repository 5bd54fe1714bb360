#!/bin/sh
# guest_init.sh - the first process of a guest: brings one node of the cluster up.
#
# What it needs to know comes from the kernel's command line (vicinal.node=N, vicinal.verbs=1 if
# there is an SR-IOV card to make ready, and vicinal.probe=1 to power off as soon as user space
# runs) and from QEMU's firmware configuration (the keys, a tar archive). It says on the console how
# far it got; vicinal/cluster/guest.py waits for that and shows it when a guest does not come up.
export PATH=/usr/sbin:/usr/bin HOME=/root

say() { echo "vicinal-guest: $*"; }

give_up() {
	say "error: $*"
	sync
	poweroff -f
}

/usr/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/usr/bin/busybox mount -t proc proc /proc
/usr/bin/busybox mount -t sysfs sysfs /sys
/usr/bin/busybox mount -t devtmpfs devtmpfs /dev
/usr/bin/busybox --install -s /usr/bin 2>/dev/null # what is there already stays
say "user space runs"

node=0 probe=0 verbs=0
for word in $(cat /proc/cmdline); do
	case $word in
	vicinal.node=*) node=${word#*=} ;;
	vicinal.probe=*) probe=${word#*=} ;;
	vicinal.verbs=*) verbs=${word#*=} ;;
	esac
done
[ "$probe" = 1 ] && poweroff -f

mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /dev/shm
mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs /run
mkdir -p /run/sshd
chmod 1777 /tmp

for module in /usr/lib/vicinal-modules/*; do
	insmod "$module" || give_up "the module $module could not be loaded"
done

tar -x -f /sys/firmware/qemu_fw_cfg/by_name/opt/vicinal/keys/raw -C / ||
	give_up "the keys could not be read"

hostname "guest$node"
ip link set lo up
ip link set eth0 up || give_up "there is no network interface eth0"
ip address add "10.0.0.$((node + 1))/24" dev eth0 || give_up "eth0 got no address"
[ "$verbs" = 1 ] && . /usr/lib/vicinal-verbs/guest_verbs.sh

# The rule that hands the shared memory to the users' group is an ordinary udev rule.
/usr/lib/systemd/systemd-udevd --daemon || give_up "udev did not start"
udevadm trigger --action=add --subsystem-match=pci
# It was seen to fail long before its time, once, on a busy machine.
udevadm settle --timeout=60 || udevadm settle --timeout=60 || give_up "udev did not settle"

/usr/sbin/sshd -e 2>/dev/console || give_up "sshd did not start"

# The power button, by which who runs the guest asks it to end. busybox's acpid starts what is
# named after the event.
mkdir -p /etc/acpi/PWRF
printf '#!/bin/sh\necho "vicinal-guest: the power button was pressed" >/dev/console\nsync\npoweroff -f\n' \
	>/etc/acpi/PWRF/00000080
chmod 755 /etc/acpi/PWRF/00000080
acpid -l /dev/null || say "acpid did not start: the power button does nothing"

# The host's way in is a virtio port, so that the network is the nodes' alone.
port=
for name in /sys/class/virtio-ports/*/name; do
	[ "$(cat "$name")" = vicinal.control ] && port=/dev/$(basename "$(dirname "$name")")
done
[ -n "$port" ] || give_up "there is no virtio port vicinal.control"
say "ready"
# Not sshd itself on the port: it polls it as two entries, one for input, one for room. Linux's
# driver takes what came between the two looks, for the entry that does not ask for it, and
# its interrupt then finds nothing new and wakes nobody: the connection stood still for ever.
# A read and a write that block ask for one thing each. The port can be opened only once.
# Until somebody connects, a read says that it ended: the first byte is for us, to wait for.
while :; do
	{
		[ -n "$(dd bs=1 count=1 2>/dev/null <&3)" ] &&
			{ cat <&3 | /usr/sbin/sshd -i -e 2>/dev/console | cat >&3; }
	} 3<>"$port"
	sleep 0.2
done
