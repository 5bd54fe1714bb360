! SPDX-License-Identifier: BSD-3-Clause
!
! coarray - what a PGAS program does: it reads and writes the memory of other images.
!
! Each part computes the expected value of every element, and counts wrong elements. Image 1
! prints a line "NAME elements ... wrong ..." for each part, with sums over all images. The
! sums come from memory that the images write on image 1, and from co_sum; both must agree.
program coarray
  use, intrinsic :: iso_fortran_env, only: atomic_int_kind, event_type, int64, lock_type, real64
  implicit none

  integer, parameter :: length = 5000, rounds = 20, updates = 50
  integer :: me, images, left, right

  integer :: puts(length)[*], gets(length)[*]
  real(real64) :: matrix(40, 30)[*]
  integer(atomic_int_kind) :: counter[*], turn[*]
  type(event_type) :: event[*]
  type(lock_type) :: lock[*]
  integer :: guarded[*], shared[*], token[*]
  integer(int64) :: results(2, 64)[*]

  me = this_image()
  images = num_images()
  right = merge(1, me + 1, me == images)
  left = merge(images, me - 1, me == 1)

  call put_everywhere()
  call get_everywhere()
  call sections()
  call ring()
  call atomics()
  call compare_and_swap()
  call events()
  call locks()
  call critical_section()
  call allocated()
  call collectives()
  sync all
  if (me == 1) print '(a)', 'done'

contains

  integer function expected(from, round, i)
    integer, intent(in) :: from, round, i
    expected = from * 1000003 + round * 10007 + i
  end function

  ! Sums up the counts of all images on image 1, by both methods, and prints the sums.
  subroutine report(name, elements, wrong)
    character(*), intent(in) :: name
    integer, intent(in) :: elements, wrong
    integer(int64) :: total(2), again(2)

    results(:, me)[1] = [int(elements, int64), int(wrong, int64)]
    total = [int(elements, int64), int(wrong, int64)]
    call co_sum(total)
    sync all
    if (me == 1) then
      again = sum(results(:, :images), dim=2)
      print '(a, a, i0, a, i0, a, l1)', name, ' elements ', again(1), ' wrong ', again(2), &
        ' agreed ', all(total == again)
    end if
    sync all
  end subroutine

  ! Every image writes whole arrays of changing length to its neighbour.
  subroutine put_everywhere()
    integer :: round, i, wrong, count, elements
    integer, allocatable :: source(:)

    wrong = 0
    elements = 0
    do round = 1, rounds
      count = length / round
      source = [(expected(me, round, i), i=1, count)]
      puts(:count)[right] = source
      sync all
      wrong = wrong + count_wrong(puts(:count), left, round)
      elements = elements + count
      sync all
    end do
    call report('put', elements, wrong)
  end subroutine

  ! Every image reads whole arrays from every other image. The target of the last copy is
  ! allocatable, so this copy goes element by element, each with a lock and an unlock.
  subroutine get_everywhere()
    integer :: round, i, other, wrong, count, elements
    integer :: copy(length)
    integer, allocatable :: few(:)

    wrong = 0
    elements = 0
    do round = 1, rounds
      count = length / round
      gets = [(expected(me, round, i), i=1, length)]
      sync all
      do other = 1, images
        copy(:count) = gets(:count)[other]
        wrong = wrong + count_wrong(copy(:count), other, round)
        elements = elements + count
      end do
      sync all
    end do
    few = gets(:10)[right]
    wrong = wrong + count_wrong(few, right, rounds)
    call report('get', elements + 10, wrong)
  end subroutine

  integer function count_wrong(array, from, round)
    integer, intent(in) :: array(:), from, round
    integer :: i
    count_wrong = count(array /= [(expected(from, round, i), i=1, size(array))])
  end function

  ! Rows, columns and every third element of a matrix: memory with gaps.
  subroutine sections()
    integer :: i, j, wrong
    real(real64) :: block(14, 10)

    matrix = 0
    sync all
    matrix(7, :)[right] = [(real(1000 * me + j, real64), j=1, 30)]
    matrix(:, 5)[right] = [(real(2000 * me + i, real64), i=1, 40)]
    sync all
    wrong = count(matrix(:, 5) /= [(real(2000 * left + i, real64), i=1, 40)])
    wrong = wrong + count(matrix(7, 6:) /= [(real(1000 * left + j, real64), j=6, 30)])
    sync all
    matrix = reshape([(real(me, real64) * 5000 + i, i=1, 1200)], [40, 30])
    sync all
    block = matrix(1:40:3, 1:30:3)[left]
    do j = 1, 10
      do i = 1, 14
        if (block(i, j) /= real(left, real64) * 5000 + (3 * i - 2) + 40 * (3 * j - 3)) wrong = wrong + 1
      end do
    end do
    call report('sections', 65 + 140, wrong)
  end subroutine

  ! A token goes round, and each image waits only for its neighbours.
  subroutine ring()
    integer :: round, wrong

    wrong = 0
    token = 0
    sync all
    do round = 1, rounds
      if (me == 1) then
        token[right] = round
        sync images (right)
        sync images (left)
        if (token /= round + images - 1) wrong = wrong + 1
      else
        sync images (left)
        if (token /= round + me - 2) wrong = wrong + 1
        token[right] = token + 1
        sync images (right)
      end if
    end do
    call report('ring', rounds, wrong)
  end subroutine

  ! All images add to one counter at the same time, and read it after each addition. The test
  ! leaves out bitwise operations and the old values of fetching operations, because Debian's
  ! OpenCoarrays 2.10 does not have them, over any network.
  subroutine atomics()
    integer :: i, wrong
    integer(atomic_int_kind) :: old, least

    wrong = 0
    call atomic_define(counter, 0_atomic_int_kind)
    sync all
    least = 0
    do i = 1, updates
      call atomic_add(counter[1], 3_atomic_int_kind)
      call atomic_ref(old, counter[1])
      ! The other images only add, and this image has added 3 since its last read.
      if (old < least + 3 .or. old > 3 * updates * images) wrong = wrong + 1
      least = old
    end do
    sync all
    call atomic_ref(old, counter[1])
    if (old /= 3 * updates * images) wrong = wrong + 1
    call report('atomic', updates + 1, wrong)
  end subroutine

  ! One word on the last image says whose turn it is; each image passes the turn on.
  subroutine compare_and_swap()
    integer :: i, wrong, tries
    integer(atomic_int_kind) :: old

    wrong = 0
    call atomic_define(turn, 0_atomic_int_kind)
    guarded = 0
    sync all
    do i = 0, 9
      tries = 0
      do
        call atomic_cas(turn[images], old, int(i * images + me - 1, atomic_int_kind), &
          int(i * images + me, atomic_int_kind))
        if (old == i * images + me - 1) exit
        if (old > i * images + me - 1) then
          wrong = wrong + 1
          exit
        end if
        tries = tries + 1
        if (tries > 10000000) error stop 'compare_and_swap: the turn never came'
      end do
    end do
    sync all
    call atomic_ref(old, turn[images])
    if (old /= 10 * images) wrong = wrong + 1
    call report('swap', 11, wrong)
  end subroutine

  ! All images post to all; data written before a post must be there after the wait.
  subroutine events()
    integer :: round, other, wrong, waiting

    wrong = 0
    puts = 0
    sync all
    do round = 1, rounds
      do other = 1, images
        puts((me - 1) * rounds + round)[other] = expected(me, round, other)
        event post (event[other])
      end do
      event wait (event, until_count=images)
      if (puts((me - 1) * rounds + round) /= expected(me, round, me)) wrong = wrong + 1
    end do
    sync all
    call event_query(event, waiting)
    if (waiting /= 0) wrong = wrong + 1
    do other = 1, images
      do round = 1, rounds
        if (puts((other - 1) * rounds + round) /= expected(other, round, me)) wrong = wrong + 1
      end do
    end do
    call report('event', rounds + 1 + images * rounds, wrong)
  end subroutine

  ! A counter without atomics, guarded by a lock on image 1, which shows lost updates.
  subroutine locks()
    integer :: i, wrong

    guarded = 0
    sync all
    do i = 1, rounds
      lock (lock[1])
      guarded[1] = guarded[1] + 1
      unlock (lock[1])
    end do
    sync all
    wrong = merge(0, 1, guarded[1] == rounds * images)
    call report('lock', 1, wrong)
  end subroutine

  subroutine critical_section()
    integer :: i, wrong

    shared = 0
    sync all
    do i = 1, rounds
      critical
        shared[images] = shared[images] + me
      end critical
    end do
    sync all
    wrong = merge(0, 1, shared[images] == rounds * images * (images + 1) / 2)
    call report('critical', 1, wrong)
  end subroutine

  ! Memory that is allocated and freed while the program runs.
  subroutine allocated()
    real(real64), allocatable :: field(:)[:]
    integer :: round, i, wrong, elements, count

    wrong = 0
    elements = 0
    do round = 1, 6
      count = 40000 * round
      allocate (field(count)[*])
      field = -1
      sync all
      field(:)[right] = [(real(me, real64) * round + 0.5_real64 * i, i=1, count)]
      sync all
      do i = 1, count
        if (field(i) /= real(left, real64) * round + 0.5_real64 * i) wrong = wrong + 1
      end do
      elements = elements + count
      deallocate (field)
    end do
    call report('allocated', elements, wrong)
  end subroutine

  subroutine collectives()
    integer :: i, wrong, scalar
    integer(int64) :: array(length)
    real(real64) :: largest(7)

    scalar = me * me
    call co_sum(scalar)
    wrong = merge(0, 1, scalar == images * (images + 1) * (2 * images + 1) / 6)
    array = [(int(me, int64) * i, i=1, length)]
    call co_sum(array, result_image=images)
    if (me == images) &
      wrong = wrong + count(array /= [(int(images * (images + 1) / 2, int64) * i, i=1, length)])
    largest = [(real(me * i, real64), i=1, 7)]
    call co_max(largest)
    wrong = wrong + count(largest /= [(real(images * i, real64), i=1, 7)])
    array = merge(7, 0, me == 1)
    call co_broadcast(array, source_image=1)
    wrong = wrong + count(array /= 7)
    call report('collective', 8 + length + merge(length, 0, me == images), wrong)
  end subroutine
end program
