#!/bin/sh
@TITLE@
#
# Written by `vicinal tune export`, for root. Each value is read back: if a driver refuses, ignores
# or changes a value, the script fails. `set` sets all values or none, `restore` sets as many as it
# can, and `verify` reports whether all values are set.
set -u
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

settings() {
	cat <<'SETTINGS'
@SETTINGS@
SETTINGS
}

# File in which `start` stores the former values for `stop`; empty without these two actions.
state='@STATE@'

complain() {
	printf '%s: error: %s\n' "${0##*/}" "$1" >&2
}

# value_of KIND DEVICE PART - print the present value; nothing if the driver does not have the part.
value_of() {
	case $1 in
	coalescing) coalescing "$2" "$3" ;;
	channels) channels "$2" "$3" ;;
	affinity) affinity "$2" ;;
	moderation) rdma -d dev show "$2" | sed -n 's/.*adaptive-moderation \([a-z]*\).*/\1/p' ;;
	esac
}

# put KIND DEVICE PART VALUE - set it.
put() {
	case $1 in
	coalescing) ethtool -C "$2" "$3" "$4" ;;
	channels) ethtool -L "$2" "$3" "$4" ;;
	affinity) put_affinity "$2" "$4" ;;
	moderation) rdma dev set "$2" adaptive-moderation "$4" ;;
	esac
}

coalescing() {
	shown=$(ethtool -c "$1") || return 1
	case $2 in
	adaptive-rx) line='Adaptive RX:' ;;
	adaptive-tx) line='Adaptive RX:.*TX:' ;;
	cqe-mode-rx) line='CQE mode RX:' ;;
	cqe-mode-tx) line='CQE mode RX:.*TX:' ;;
	# ethtool prints rx-frame-low, and takes rx-frames-low.
	*) line=$(printf '%s' "$2" | sed 's/frames-/frames*-/'): ;;
	esac
	printf '%s\n' "$shown" | sed -n "s|^${line}[[:space:]]*\([a-z0-9]*\).*|\1|p" | sed 's/^n$//'
}

channels() {
	shown=$(ethtool -l "$1") || return 1
	case $2 in
	combined) line=Combined ;;
	rx) line=RX ;;
	tx) line=TX ;;
	esac
	printf '%s\n' "$shown" | sed -n "/^Current/,\$s|^$line:[[:space:]]*\([0-9]*\).*|\1|p"
}

# interrupts INTERFACE - print the interrupts of its device, or of the PCI device below (virtio).
interrupts() {
	device=$(readlink -f "/sys/class/net/$1/device") || return 1
	for directory in "$device/msi_irqs" "${device%/*}/msi_irqs"; do
		[ -d "$directory" ] || continue
		for file in "$directory"/*; do
			[ ! -d "/proc/irq/${file##*/}" ] || printf '%s\n' "${file##*/}"
		done | sort -n
		return 0
	done
}

# affinity INTERFACE - print the processors of each interrupt, with / between; once if all are equal.
affinity() {
	numbers=$(interrupts "$1") || return 1
	all='' same=yes
	for number in $numbers; do
		read -r processors <"/proc/irq/$number/smp_affinity_list" || return 1
		[ -z "$all" ] || [ "$processors" = "${all##*/}" ] || same=no
		all=${all:+$all/}$processors
	done
	[ $same = no ] || all=${all##*/}
	printf '%s\n' "$all"
}

put_affinity() {
	left=$2/
	for number in $(interrupts "$1"); do
		printf '%s\n' "${left%%/*}" >"/proc/irq/$number/smp_affinity_list" || return 1
		case $left in */*/*) left=${left#*/} ;; esac
	done
}

# Lines that restore the former values, each as in settings().
undo=''

# apply LINES - set the values of lines as in settings(), and read them back.
apply() {
	while read -r kind device part value <&3; do
		[ -n "$kind" ] || continue
		if ! before=$(value_of "$kind" "$device" "$part"); then
			complain "$part of $device cannot be read"
			return 1
		elif [ -z "$before" ]; then
			complain "the driver of $device has no $part"
			return 1
		elif [ "$before" = "$value" ]; then
			echo "$device $part is $value already"
			continue
		fi
		undo="$undo$kind $device $part $before
"
		if ! put "$kind" "$device" "$part" "$value"; then
			complain "$device refuses $part $value"
			return 1
		fi
		after=$(value_of "$kind" "$device" "$part")
		if [ "$after" != "$value" ]; then
			complain "$device accepts $part $value without an error, but has $after"
			return 1
		fi
		echo "$device $part is $value, and was $before"
	done 3<<LINES
$1
LINES
}

# apply_each LINES - as apply, but continue after a line that fails.
apply_each() {
	wrong=0
	while read -r line <&4; do
		apply "$line" || wrong=1
	done 4<<LINES
$1
LINES
	return $wrong
}

leave() {
	status=$?
	trap - EXIT
	if [ $status -ne 0 ] && [ -n "$undo" ]; then
		apply_each "$undo" || complain 'not all values are restored'
	fi
	exit $status
}

set_all() {
	trap leave EXIT
	trap 'exit 1' HUP INT TERM
	apply "$(settings)" || exit 1
	trap '' HUP INT TERM
}

verify() {
	wrong=0
	while read -r kind device part value <&3; do
		found=$(value_of "$kind" "$device" "$part")
		if [ "$found" != "$value" ]; then
			complain "$device $part is ${found:-missing}, and not $value"
			wrong=1
		fi
	done 3<<LINES
$(settings)
LINES
	return $wrong
}

present() {
	while read -r kind device part _ <&3; do
		found=$(value_of "$kind" "$device" "$part")
		[ -z "$found" ] || printf '%s\n' "$kind $device $part $found"
	done 3<<LINES
$(settings)
LINES
}

for program in sed @PROGRAMS@; do
	if ! command -v "$program" >/dev/null; then
		complain "there is no program $program: install it"
		exit 1
	fi
done
case ${1-@ACTION@},$state in
set,*)
	set_all
	;;
restore,*)
	apply_each "$(settings)"
	;;
start,?*)
	# The values of an earlier start without a stop are the older ones: keep them.
	if [ ! -e "$state" ]; then
		if ! mkdir -p "${state%/*}" || ! present >"$state.new" || ! mv "$state.new" "$state"; then
			exit 1
		fi
	fi
	set_all
	;;
stop,?*)
	[ -e "$state" ] || exit 0
	apply_each "$(cat "$state")" && rm -f "$state"
	;;
verify,*)
	verify
	;;
*)
	complain "'$1' is no action: use set, restore, verify${state:+, start, stop}"
	exit 2
	;;
esac
