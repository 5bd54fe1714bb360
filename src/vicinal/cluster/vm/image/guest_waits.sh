# guest_waits.sh - sourced by guest_init.sh in a guest that boots without an identity, and receives it by a
# virtio port. Before that it may be saved to a file, from which many guests start. So nothing is created
# earlier that must differ between guests, and the kernel's random numbers are seeded again afterwards.

# await_devices - wait for the cards and the region, which are plugged in while the guest runs.
await_devices() {
	for card in $cards; do
		await "the network card ${card%=*}" has_card "${card%=*}"
	done
	load_drivers
	for link in $links; do
		await "the network card ${link%%=*}" has_card "${link%%=*}"
	done
	[ "$region" = 0 ] || await "the region's device" has_region
}

# load_drivers - load the drivers of SR-IOV VFs. Some share modules.
load_drivers() {
	for driver in $drivers; do
		for module in "/usr/lib/vicinal-vfs/$driver"/*; do
			name=${module##*/??-}
			[ -d "/sys/module/${name%.ko}" ] || insmod "$module" ||
				give_up "the module $module could not be loaded"
		done
	done
}

# await WHAT COMMAND - wait until the command succeeds.
await() {
	what=$1 tries=1200
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || give_up "$what did not appear"
		sleep 0.05
	done
}

has_card() { [ -n "$(with_address "$1")" ]; }

# Whether the region's device exists, and udev has given it to its users.
has_region() {
	for device in /sys/bus/pci/devices/*; do
		read -r vendor <"$device/vendor" && read -r model <"$device/device" || continue
		[ "$vendor $model" = "0x1af4 0x1110" ] || continue
		[ -e "$device/resource2" ] && [ "$(stat -c %G "$device/resource2")" = mpi ]
		return
	done
	return 1
}

who=$(port_of vicinal.identity)
[ -n "$who" ] || give_up "there is no virtio port vicinal.identity"
exec 4<>"$who"
echo waits >&4
# The archive's size, the time, whether there will be a region, and random bytes.
read -r size now region seed <&4 || give_up "no identity was received"
echo "$seed" | /usr/lib/vicinal-waits/reseed || give_up "the random numbers could not be seeded"
seed=
date -s "@$now" >/dev/null
head -c "$size" <&4 | tar -x -C / || give_up "the archive with this guest's identity could not be read"
exec 4>&-
