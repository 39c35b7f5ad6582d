#pragma once

namespace lockstep {

// Programs that hold keys or tokens leave no core dumps, to files or to programs: a dump would
// outlive the process and may be read by others. Call one of these once, at startup.

// Also keeps other processes of the same user from reading this one's memory. Ends with the next
// program that this process, or a child, executes: children of the agent dump as the user likes.
void forbid_core_dumps();
// For workers, whose memory the other ranks of their pod read (process_vm_readv): that must stay
// allowed. Children inherit it.
void forbid_core_dumps_of_readable_process();

}  // namespace lockstep
