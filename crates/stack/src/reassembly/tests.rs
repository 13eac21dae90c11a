//! What reassembly promises, against datagrams that were cut, shuffled, overlapped and starved.
