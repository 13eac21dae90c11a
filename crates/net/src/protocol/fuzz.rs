//! Millions of messages, whole and broken, into sessions in every state.
//!
//! What is random comes from a seed, which a failure prints. `PLUMB_FUZZ_MESSAGES` says how many; 10 million are a matter of
//! seconds. Left out: sockets.

use plumb_base::seed::{Seed, Stream};
use rand::{Rng as _, RngExt as _};

use super::frame::frame;
use super::session::tests::{AGENT_STATES, CLIENT_STATES, agent_in, at, client_in, messages};

/// How many messages unless told otherwise.
const MESSAGES: u64 = 1_000_000;

/// Breaks a frame in one of the ways in which things break.
fn mutate(bytes: &mut Vec<u8>, random: &mut Stream) {
    let place = random.random_range(0..bytes.len());
    match random.random_range(0..8_u8) {
        0 => bytes[place] ^= 1 << random.random_range(0..8_u8),
        1 => bytes[place] = 0xff,
        2 => bytes.truncate(place + 1),
        3 => bytes.insert(place, random.random_range(0..=255_u8)),
        4 => {
            let again = bytes[place..].to_vec();
            bytes.extend_from_slice(&again);
        }
        5 => {
            // A length that does not fit what follows.
            let len = random.next_u32() >> random.random_range(0..32_u8);
            bytes.splice(..4.min(bytes.len()), len.to_le_bytes());
        }
        _ => {}
    }
}

#[test]
fn no_message_in_any_order_breaks_either_side() {
    let wanted = std::env::var("PLUMB_FUZZ_MESSAGES").ok().and_then(|n| n.parse().ok());
    let wanted: u64 = wanted.unwrap_or(MESSAGES);
    let seed = Seed(0x6e65_7473);
    let mut random = seed.stream("messages");
    let frames: Vec<Vec<u8>> = messages().iter().map(|message| frame(&message.encode())).collect();
    let agents: Vec<_> = (0..AGENT_STATES).map(agent_in).collect();
    let clients: Vec<_> = (0..CLIENT_STATES).map(client_in).collect();
    let (mut said, mut ends) = (0, 0_u64);
    while said < wanted {
        let mut agent = agents[random.random_range(0..agents.len())].clone();
        let mut client = clients[random.random_range(0..clients.len())].clone();
        let mut ms = 1;
        while said < wanted && !(agent.is_over() && client.is_over()) {
            let mut bytes = frames[random.random_range(0..frames.len())].clone();
            mutate(&mut bytes, &mut random);
            ms += u64::from(random.random_range(0..50_u8));
            said += 2;
            agent.handle_bytes(at(ms), &bytes);
            client.handle_bytes(at(ms), &bytes);
            if random.random_range(0..16_u8) == 0 {
                agent.handle_timeout(agent.deadline().min(at(ms + 5_000)));
                client.handle_timeout(client.deadline().min(at(ms + 5_000)));
            }
            while agent.poll_action().is_some() {}
            while client.poll_action().is_some() {}
            if bytes.len() > 4_000 {
                break;
            }
        }
        ends += u64::from(agent.is_over()) + u64::from(client.is_over());
    }
    assert!(ends > wanted / 100, "{said} messages of {seed:?} ended only {ends} sessions");
}
