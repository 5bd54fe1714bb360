# guest_verbs.sh - sourced by guest_init.sh in a guest with an SR-IOV card: makes a virtual
# function of the card, and an RDMA device on that.
#
# The function's driver comes after its address was set, since it reads that once; and that of the
# card before both, since only it can make functions. PF stands for the card, VF for the function.
load_modules() {
	for module in "/usr/lib/vicinal-verbs/$1"/*; do
		insmod "$module" || give_up "the module $module could not be loaded"
	done
}

load_modules card
ip link set eth1 up || give_up "there is no SR-IOV card eth1"
echo 1 >/sys/class/net/eth1/device/sriov_numvfs || give_up "the card made no virtual function"
# By its path: the shell would take its own `ip`, which knows no functions.
/usr/bin/ip link set eth1 vf 0 mac "52:54:00:00:02:0$((node + 1))" ||
	give_up "the virtual function got no hardware address"
load_modules function
function=$(ls /sys/class/net/eth1/device/virtfn0/net 2>/dev/null)
[ -n "$function" ] || give_up "the virtual function has no network interface"
ip address add "10.1.$((node + 1 >> 8)).$((node + 1 & 255))/16" dev "$function" || give_up "$function got no address"
ip link set "$function" up || give_up "$function could not be set up"

load_modules rdma
rdma link add rxe0 type rxe netdev "$function" || give_up "there is no RDMA on $function"
waited=0
until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do
	[ "$waited" -lt 600 ] || give_up "the RDMA port on $function did not become active"
	waited=$((waited + 1))
	sleep 0.1
done
# RDMA keeps the buffers of ordinary users in memory; who logs in inherits this.
ulimit -l unlimited
say "RDMA device rxe0 on $function, a virtual function of eth1"
