//! The one fill that needs no arithmetic: an element repeated.

/// Bytes of the block that is copied over and over: it stays in the first-level cache, so a large
/// fill runs at the speed of writing.
const BLOCK: usize = 16 << 10;

/// Fills the buffer with copies of the pattern; the last copy is cut where the buffer ends. An empty
/// pattern changes nothing.
pub fn repeat(buf: &mut [u8], pattern: &[u8]) {
    let Some((&first, rest)) = pattern.split_first() else {
        return;
    };
    if rest.iter().all(|&byte| byte == first) {
        buf.fill(first);
        return;
    }
    let copies = (BLOCK / pattern.len()).max(1);
    let block = (copies * pattern.len()).min(buf.len());
    let (source, target) = buf.split_at_mut(block);
    repeat_by_doubling(source, pattern);
    for chunk in target.chunks_mut(block.max(1)) {
        chunk.copy_from_slice(&source[..chunk.len()]);
    }
}

/// Each round copies everything written so far, so a block needs few, long copies.
fn repeat_by_doubling(buf: &mut [u8], pattern: &[u8]) {
    let mut filled = pattern.len().min(buf.len());
    buf[..filled].copy_from_slice(&pattern[..filled]);
    while filled < buf.len() {
        let next = filled.min(buf.len() - filled);
        buf.copy_within(..next, filled);
        filled += next;
    }
}
