#pragma once

namespace lockstep::bench {

// How long a replica needs to take over from a server, in this process: prints the microseconds to
// export and import the memory of the most calls that a client may have unfinished, and those from
// leaving the server until a call that is repeated at the replica is done.
void print_takeover();

}  // namespace lockstep::bench
