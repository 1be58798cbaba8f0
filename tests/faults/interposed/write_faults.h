// Makes chosen calls to the system fail, fall short, be interrupted or take long. Linked into a test, or loaded into any
// program:
//
//   LD_PRELOAD=libchorus_write_faults.so CHORUS_FAULT="call=write path=checkpoints errno=28 at=3 count=2" chorus train ...
//
//   call=NAME    open (for writing), write, flush (fsync, fdatasync), rename, mkdir, remove (unlink, rmdir), truncate, or any
//   path=TEXT    only paths that contain it; of renames either path
//   at=N         the N-th of these calls is the first that is hit; 1 unless given
//   count=N      so many are hit; all from there on unless given
//   errno=N      they fail with it, or with EINTR and succeed when they are repeated
//   most=N       writes take at most N bytes
//   room=N       writes fill the N bytes that are left on the disk; then they fail, with ENOSPC unless errno says otherwise
//   delay=N      they take N milliseconds longer
#pragma once
#include <string>

namespace chorus::testing {

/// Sets the fault of this process, as CHORUS_FAULT does from outside, and starts counting; "" is none.
void set_write_fault(const std::string& fault);

/// How many calls matched call and path since then.
long matching_calls();

}  // namespace chorus::testing
