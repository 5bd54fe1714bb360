/* SPDX-License-Identifier: BSD-3-Clause */
/* promises.pml - what must hold where nothing can go on. */

/* ---- what is promised where nothing can go on: nothing is lost, and all that was asked for was done ---- */

/* `i` of `j`, both alive */
inline check_living(i, j)
{
	assert(OF(i, j).state != PEER_FAILED);
	assert(!OF(i, j).switching && !OF(i, j).owes_switched && !OF(i, j).owes_region && !OF(i, j).owes_detach);
	assert(!is_failing_over(i, j));
	/* what was sent has come, unless one end was told of an error */
	assert(OF(i, j).sent == MESSAGES || !is_talking(i, j));
	assert(OF(j, i).got == OF(i, j).sent || OF(j, i).told || OF(i, j).failover == FAILOVER_DONE);
	if
	:: OF(i, j).failover == FAILOVER_DONE
	:: else ->
		/* who has both come back elsewhere meets there, and sends through that region */
		assert(!(elsewhere[i] && elsewhere[j]) || OF(i, j).attachment == OTHER);
		/* who has stayed meets again where it was */
		assert(left[i] || left[j] || requested[i] != ROUTE_REGION || requested[j] != ROUTE_REGION ||
		       OF(i, j).attachment == HOME);
		assert(!OF(i, j).sending ||
		       OF(i, j).network == (OF(i, j).attachment == NOWHERE || wanted(i, j)))
	fi
}

#define has_left(i) (requested[i] != ROUTE_LEAVE || left[i] || evicted[i])

inline check_pair(i, j)
{
	if
	:: dead[i] || i == j
	:: !dead[i] && i != j && dead[j] -> assert(OF(i, j).state == PEER_FAILED && OF(i, j).reported)
	:: !dead[i] && i != j && !dead[j] -> check_living(i, j)
	fi
}
