//! Frames of clients and runtimes, damaged in every way: whatever comes, reading it ends, and takes no
//! more memory than a piece.

use fastrand::Rng;

use ferrolet_streams::{spdy, websocket};

/// Frames of both protocols, whole and well.
const SEEDS: [&[u8]; 6] = [
    // SPDY: data with its end, a ping, a reset, settings.
    b"\0\0\0\x01\x01\0\0\x05hello",
    b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02",
    b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x01\0\0\0\x05",
    b"\x80\x03\0\x04\0\0\0\x04\0\0\0\0",
    // WebSocket: a message, a ping; both masked.
    b"\x82\x85\x01\x02\x03\x04\x69\x67\x6f\x68\x6e",
    b"\x89\x82\0\0\0\0hi",
];

/// The most that either reads at once.
const PIECE: usize = 32 * 1024;

fn damaged(chance: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..chance.usize(1..6) {
        bytes.extend_from_slice(SEEDS[chance.usize(..SEEDS.len())]);
    }
    for _ in 0..chance.usize(..5) {
        let at = chance.usize(..bytes.len());
        match chance.u8(..3) {
            0 => bytes[at] = chance.u8(..),
            1 => bytes.insert(at, chance.u8(..)),
            _ if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

#[tokio::test]
async fn frames_may_be_anything() {
    let mut chance = Rng::with_seed(47);
    for _ in 0..20_000 {
        let bytes = damaged(&mut chance);
        // Each frame or piece takes a byte at least, and an empty one its head.
        let most = bytes.len() + 2;
        let mut frames = spdy::Frames::of_server(bytes.as_slice());
        let mut n_heard = 0;
        while let Ok(heard) = frames.next().await {
            n_heard += 1;
            assert!(frames.piece().len() <= PIECE && n_heard <= most, "{bytes:?}");
            if heard == spdy::Heard::Closed {
                break;
            }
        }
        let mut frames = websocket::Frames::new(bytes.as_slice());
        let mut n_heard = 0;
        while let Ok(heard) = frames.next().await {
            n_heard += 1;
            assert!(frames.piece().len() <= PIECE && n_heard <= most, "{bytes:?}");
            if heard == websocket::Heard::Closed {
                break;
            }
        }
    }
}
