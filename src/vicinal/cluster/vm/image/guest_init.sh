#!/bin/sh
# guest_init.sh - the first process of a guest, which sets up one node of the cluster.
#
# Its identity comes from QEMU's firmware configuration: a tar archive with its name, addresses, peers and
# keys (vicinal/cluster/vm/guest/identity.py). The kernel's command line describes the guest:
# vicinal.verbs=1 if it has an SR-IOV card to configure, vicinal.doorbell=1 if the region's device sends
# interrupts, vicinal.waits=1 if it receives its identity later by a virtio port (guest_waits.sh), and
# vicinal.probe=1 to power off as soon as user space runs. It reports its progress on the console. The
# program that started the guest waits for the reports, and shows them if the guest does not boot.
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
/usr/bin/busybox --install -s /usr/bin 2>/dev/null # existing files stay
say "user space runs"

probe=0 verbs=0 doorbell=0 waits=0
for word in $(cat /proc/cmdline); do
	case $word in
	vicinal.probe=*) probe=${word#*=} ;;
	vicinal.verbs=*) verbs=${word#*=} ;;
	vicinal.doorbell=*) doorbell=${word#*=} ;;
	vicinal.waits=*) waits=${word#*=} ;;
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

start_udev() {
	# An ordinary udev rule gives the shared memory to the users' group.
	/usr/lib/systemd/systemd-udevd --daemon || give_up "udev did not start"
	for bus in /sys/bus/nd/devices/ndbus*; do
		[ -e "$bus/wait_probe" ] && cat "$bus/wait_probe" >/dev/null # until /dev/dax exists
	done
	udevadm trigger --action=add --subsystem-match=pci --subsystem-match=dax
	# On a busy machine it once failed long before its timeout.
	udevadm settle --timeout=60 || udevadm settle --timeout=60 || give_up "udev did not settle"
}

# port_of NAME - the device of the virtio port with this name.
port_of() {
	for port in /sys/class/virtio-ports/*; do
		read -r found <"$port/name" && [ "$found" = "$1" ] && echo "/dev/${port##*/}"
	done
}

ip link set lo up

# The power button, by which the guest's operator asks it to shut down. busybox's acpid runs the file with
# the event's name.
mkdir -p /etc/acpi/PWRF
printf '#!/bin/sh\necho "vicinal-guest: the power button was pressed" >/dev/console\nsync\npoweroff -f\n' \
	>/etc/acpi/PWRF/00000080
chmod 755 /etc/acpi/PWRF/00000080
acpid -l /dev/null || say "acpid did not start: the power button does nothing"

if [ "$waits" = 1 ]; then
	start_udev
	. /usr/lib/vicinal-waits/guest_waits.sh
	commands=/etc/vicinal/commands
else
	tar -x -f /sys/firmware/qemu_fw_cfg/by_name/opt/vicinal/identity/raw -C / ||
		give_up "the archive with this guest's identity could not be read"
	commands=/sys/firmware/qemu_fw_cfg/by_name/opt/vicinal/commands/raw
fi
# node, address, cards, links and drivers. Each card is a hardware address, with the peer that it leads to
# if it leads to only one. Each link to another network is its card's hardware address, the interface's
# name, and the address there. drivers are the drivers of links that are SR-IOV VFs.
links= drivers=
. /etc/vicinal/guest

hostname -F /etc/hostname

# with_address MAC - name of the card with this hardware address.
with_address() {
	for card in /sys/class/net/*; do
		read -r found <"$card/address" && [ "$found" = "$1" ] && echo "${card##*/}"
	done
}

[ "$waits" = 0 ] || await_devices
# Before the other interfaces are up, because only the name of an interface that is down can change.
for link in $links; do
	interface=$(with_address "${link%%=*}")
	[ -n "$interface" ] || give_up "there is no network card ${link%%=*}"
	link=${link#*=}
	name=${link%%=*}
	if [ "$interface" != "$name" ]; then
		[ ! -e "/sys/class/net/$name" ] || ip link set "$name" name "other-$name" &&
			ip link set "$interface" name "$name"
	fi && ip link set "$name" up || give_up "$interface could not be set up as $name"
	[ -z "${link#*=}" ] || ip address add "${link#*=}" dev "$name" ||
		give_up "$name got no address"
done
for card in $cards; do
	interface=$(with_address "${card%=*}")
	[ -n "$interface" ] || give_up "there is no network card ${card%=*}"
	ip link set "$interface" up || give_up "$interface could not be set up"
	if [ -n "$address" ]; then # the first card gets it
		ip address add "$address" dev "$interface" || give_up "$interface got no address"
		source=${address%/*} address=
	fi
	case $card in
	*=*)
		# IPv6 link addresses would be a second route to a peer.
		echo 1 2>/dev/null >"/proc/sys/net/ipv6/conf/$interface/disable_ipv6"
		ip route add "${card#*=}/32" dev "$interface" src "$source" ||
			give_up "$interface got no route to ${card#*=}"
		;;
	esac
done
# A guest without peers has no card, but its name must still resolve to itself.
[ -z "$address" ] || ip address add "$address" dev lo
[ "$verbs" = 1 ] && . /usr/lib/vicinal-verbs/guest_verbs.sh

[ "$waits" = 1 ] || start_udev
[ "$doorbell" = 1 ] && . /usr/lib/vicinal-doorbell/guest_doorbell.sh

# run KEY COMMAND - run a command of the cluster file; its output goes to the console.
run() {
	say "$1: $2"
	(cd /root && exec sh -c "$2") </dev/null ||
		give_up "$1: this command ended with status $?: $2"
}
[ ! -e "$commands" ] || . "$commands"

/usr/sbin/sshd -e 2>/dev/console || give_up "sshd did not start"

# The host connects by a virtio port, so that only the nodes use the network.
port=$(port_of vicinal.control)
[ -n "$port" ] || give_up "there is no virtio port vicinal.control"
say "ready"
# sshd does not use the port itself, because it polls the port as two entries, one for input and one for
# room. If something arrives between the two polls, Linux's driver reports it only for the entry that does
# not wait for it. The following interrupt then finds nothing new and wakes nobody, and the connection
# hangs for ever. A blocking read and a blocking write each wait for one thing. The port can be opened
# only once. Until a client connects, a read reports the end of the file; the first byte announces the
# client. The port stays open meanwhile, because data between a read and closing the port would be lost.
while :; do
	{
		until [ -n "$(dd bs=1 count=1 2>/dev/null <&3)" ]; do sleep 0.2; done
		cat <&3 | /usr/sbin/sshd -i -e 2>/dev/console | cat >&3
	} 3<>"$port"
	sleep 0.2
done
