//! Study `stack`: a user-level stack beside Linux's, after Kjellerstedt (1997).

experiments! {
    mirror_rtt,
    stack_time,
    stack_checksum,
    stack_replay,
    stack_contention,
    breakdown_local,
    stack_chunk,
}
