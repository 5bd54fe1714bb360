#!/bin/sh
# guest_init.sh - the first process of a guest: brings one node of the cluster up.
#
# Who it is comes from QEMU's firmware configuration: a tar archive with its name, its addresses,
# its neighbours and the keys (vicinal/cluster/vm/guest/identity.py). The kernel's command line has what the guest is
# made of: vicinal.verbs=1 if there is an SR-IOV card to make ready, vicinal.doorbell=1 if the region's
# device can interrupt, vicinal.waits=1 if it is told who it is later, by a virtio port (guest_waits.sh),
# and vicinal.probe=1 to power off as soon as user space runs. It says on the console how far it got;
# whoever started the guest waits for that and shows it when the guest does not come up.
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
	# The rule that hands the shared memory to the users' group is an ordinary udev rule.
	/usr/lib/systemd/systemd-udevd --daemon || give_up "udev did not start"
	for bus in /sys/bus/nd/devices/ndbus*; do
		[ -e "$bus/wait_probe" ] && cat "$bus/wait_probe" >/dev/null # until /dev/dax is there
	done
	udevadm trigger --action=add --subsystem-match=pci --subsystem-match=dax
	# It was seen to fail long before its time, once, on a busy machine.
	udevadm settle --timeout=60 || udevadm settle --timeout=60 || give_up "udev did not settle"
}

# port_of NAME - the device of the virtio port of that name.
port_of() {
	for port in /sys/class/virtio-ports/*; do
		read -r found <"$port/name" && [ "$found" = "$1" ] && echo "/dev/${port##*/}"
	done
}

ip link set lo up

# The power button, by which who runs the guest asks it to end. busybox's acpid starts what is
# named after the event.
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
		give_up "the archive that says who this is could not be read"
	commands=/sys/firmware/qemu_fw_cfg/by_name/opt/vicinal/commands/raw
fi
# node, address, cards and links: of each card its hardware address, and what neighbour it leads to,
# if only to one; of each link to another network that of its card, what that is to be called, and the
# address there. drivers: of what links are SR-IOV functions.
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
# Before the others are up: names can be changed of what is down.
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
	if [ -n "$address" ]; then # the first one bears it
		ip address add "$address" dev "$interface" || give_up "$interface got no address"
		source=${address%/*} address=
	fi
	case $card in
	*=*)
		# Addresses of the link would be one more way to a neighbour.
		echo 1 2>/dev/null >"/proc/sys/net/ipv6/conf/$interface/disable_ipv6"
		ip route add "${card#*=}/32" dev "$interface" src "$source" ||
			give_up "$interface got no route to ${card#*=}"
		;;
	esac
done
# One that has no neighbours has no card, and still a name that must lead to it.
[ -z "$address" ] || ip address add "$address" dev lo
[ "$verbs" = 1 ] && . /usr/lib/vicinal-verbs/guest_verbs.sh

[ "$waits" = 1 ] || start_udev
[ "$doorbell" = 1 ] && . /usr/lib/vicinal-doorbell/guest_doorbell.sh

# run KEY COMMAND - a command of the cluster's file; its output is on the console.
run() {
	say "$1: $2"
	(cd /root && exec sh -c "$2") </dev/null ||
		give_up "$1: this command ended with status $?: $2"
}
[ ! -e "$commands" ] || . "$commands"

/usr/sbin/sshd -e 2>/dev/console || give_up "sshd did not start"

# The host's way in is a virtio port, so that the network is the nodes' alone.
port=$(port_of vicinal.control)
[ -n "$port" ] || give_up "there is no virtio port vicinal.control"
say "ready"
# Not sshd itself on the port: it polls it as two entries, one for input, one for room. Linux's
# driver takes what came between the two looks, for the entry that does not ask for it, and
# its interrupt then finds nothing new and wakes nobody: the connection stood still for ever.
# A read and a write that block ask for one thing each. The port can be opened only once.
# Until somebody connects, a read says that it ended: the first byte is for us, to wait for. The
# port stays open meanwhile: what came between a read and the port's end would be lost.
while :; do
	{
		until [ -n "$(dd bs=1 count=1 2>/dev/null <&3)" ]; do sleep 0.2; done
		cat <&3 | /usr/sbin/sshd -i -e 2>/dev/console | cat >&3
	} 3<>"$port"
	sleep 0.2
done
