//! Any stream of bytes, in any portions, gives messages or one error, the same ones however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::framing::{FrameDecoder, encode_frame};
use proto::v1::AgentMessage;

const MAX: usize = 1 << 16;

/// Messages until the first error of the framing, and whether there was one.
fn decode(stream: &[u8], portion: usize) -> (Vec<Option<AgentMessage>>, bool) {
    let mut decoder = FrameDecoder::with_max(MAX);
    let mut messages = Vec::new();
    for bytes in stream.chunks(portion.max(1)) {
        decoder.push(bytes);
        assert!(decoder.pending() <= stream.len());
        loop {
            match decoder.next_framed().map(|framed| framed.map(proto::framing::decode_frame)) {
                Ok(None) => break,
                Ok(Some(message)) => messages.push(message.ok()),
                Err(error) => {
                    assert_eq!(decoder.next_framed().expect_err("permanent"), error);
                    return (messages, true);
                }
            }
        }
    }
    let _ = decoder.finish();
    (messages, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((portion, stream)) = data.split_first() else { return };
    let found = decode(stream, usize::from(*portion));
    assert_eq!(found, decode(stream, stream.len()), "cut differently");
    for message in found.0.into_iter().flatten() {
        let mut again = Vec::new();
        encode_frame(&message, &mut again).expect("it was below the limit");
        // Unknown fields are dropped, so bytes may differ; meaning may not. NaN is never equal to itself.
        let back = decode(&again, again.len()).0;
        assert_eq!(format!("{back:?}"), format!("{:?}", [Some(message)]));
    }
});
