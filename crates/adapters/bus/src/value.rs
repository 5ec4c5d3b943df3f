//! Values of D-Bus and their bytes. Pure: values in, bytes out, and back.
//!
//! Bytes come from other processes: lengths are checked before anything is made of them, nesting is
//! bounded, and what is wrong is an error, never a panic.

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `y`
    Byte(u8),
    /// `b`
    Bool(bool),
    /// `n`
    I16(i16),
    /// `q`
    U16(u16),
    /// `i`
    I32(i32),
    /// `u`
    U32(u32),
    /// `x`
    I64(i64),
    /// `t`
    U64(u64),
    /// `d`
    F64(f64),
    /// `s`
    Str(String),
    /// `o`
    Path(String),
    /// `g`
    Signature(String),
    /// `h`: which of the message's descriptors.
    Descriptor(u32),
    /// `v`
    Variant(Box<Value>),
    /// `(…)`, or `{…}` as an element of an array.
    Struct(Vec<Value>),
    /// `a…` with the signature of its elements.
    Array(String, Vec<Value>),
}

/// Bytes that are no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// They end too early.
    #[error("the message ends in the middle of a value")]
    Short,
    /// A signature that is none.
    #[error("{0:?} is not a signature")]
    Signature(String),
    /// A text that is none.
    #[error("a text is not UTF-8 or does not end")]
    Text,
    /// A truth that is neither.
    #[error("{0} is neither true nor false")]
    Truth(u32),
    /// Values in values in values.
    #[error("values are nested too deeply")]
    TooDeep,
    /// More than any sane message has.
    #[error("an array has {0} bytes")]
    TooLong(u32),
}

/// As the specification bounds it: 32 arrays and 32 structs.
const DEEPEST: usize = 64;
/// Bytes of an array at most.
const LONGEST_ARRAY: u32 = 1 << 26;

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Str(text.into())
    }

    /// A value in a variant.
    pub fn variant(value: Self) -> Self {
        Self::Variant(Box::new(value))
    }

    /// Its signature.
    pub fn signature(&self) -> String {
        match self {
            Self::Byte(_) => "y".to_owned(),
            Self::Bool(_) => "b".to_owned(),
            Self::I16(_) => "n".to_owned(),
            Self::U16(_) => "q".to_owned(),
            Self::I32(_) => "i".to_owned(),
            Self::U32(_) => "u".to_owned(),
            Self::I64(_) => "x".to_owned(),
            Self::U64(_) => "t".to_owned(),
            Self::F64(_) => "d".to_owned(),
            Self::Str(_) => "s".to_owned(),
            Self::Path(_) => "o".to_owned(),
            Self::Signature(_) => "g".to_owned(),
            Self::Descriptor(_) => "h".to_owned(),
            Self::Variant(_) => "v".to_owned(),
            Self::Struct(fields) => {
                format!("({})", fields.iter().map(Self::signature).collect::<String>())
            }
            Self::Array(element, _) => format!("a{element}"),
        }
    }

    /// The value inside, where it is a variant.
    pub fn inner(&self) -> &Self {
        match self {
            Self::Variant(inner) => inner.inner(),
            other => other,
        }
    }
}

/// Writes values, least significant byte first.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// What was written.
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    /// Fills up to a multiple.
    pub(crate) fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.align(bytes.len());
        self.bytes.extend(bytes);
    }

    /// Writes a number of four bytes.
    pub(crate) fn u32(&mut self, number: u32) {
        self.put(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(length(text.len()));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, signature: &str) {
        // A signature longer than 255 bytes is never made here.
        self.bytes.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.bytes.extend(signature.as_bytes());
        self.bytes.push(0);
    }

    /// Writes a value.
    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Byte(it) => self.bytes.push(*it),
            Value::Bool(it) => self.u32(u32::from(*it)),
            Value::I16(it) => self.put(&it.to_le_bytes()),
            Value::U16(it) => self.put(&it.to_le_bytes()),
            Value::I32(it) => self.put(&it.to_le_bytes()),
            Value::U32(it) | Value::Descriptor(it) => self.u32(*it),
            Value::I64(it) => self.put(&it.to_le_bytes()),
            Value::U64(it) => self.put(&it.to_le_bytes()),
            Value::F64(it) => self.put(&it.to_le_bytes()),
            Value::Str(it) | Value::Path(it) => self.text(it),
            Value::Signature(it) => self.signature(it),
            Value::Variant(inner) => {
                self.signature(&inner.signature());
                self.value(inner);
            }
            Value::Struct(fields) => {
                self.align(8);
                fields.iter().for_each(|field| self.value(field));
            }
            Value::Array(element, items) => {
                self.u32(0);
                let length_at = self.bytes.len() - 4;
                self.align(alignment(element.as_bytes()));
                let start = self.bytes.len();
                items.iter().for_each(|item| self.value(item));
                let n_bytes = length(self.bytes.len() - start);
                self.bytes[length_at..length_at + 4].copy_from_slice(&n_bytes.to_le_bytes());
            }
        }
    }
}

fn length(n_bytes: usize) -> u32 {
    u32::try_from(n_bytes).unwrap_or(u32::MAX)
}

fn alignment(signature: &[u8]) -> usize {
    match signature.first() {
        Some(b'n' | b'q') => 2,
        Some(b'b' | b'i' | b'u' | b's' | b'o' | b'a' | b'h') => 4,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        _ => 1,
    }
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The least significant.
    Little,
    /// The most significant.
    Big,
}

/// Reads values.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    order: Order,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of a message or of its body.
    pub(crate) fn new(bytes: &'a [u8], order: Order) -> Self {
        Self { bytes, at: 0, order }
    }

    /// How far it has come.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Skips to a multiple.
    pub(crate) fn align(&mut self, to: usize) -> Result<(), ValueError> {
        let at = self.at.next_multiple_of(to);
        if at > self.bytes.len() {
            return Err(ValueError::Short);
        }
        self.at = at;
        Ok(())
    }

    fn take(&mut self, n_bytes: usize) -> Result<&'a [u8], ValueError> {
        let end = self.at.checked_add(n_bytes).ok_or(ValueError::Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(ValueError::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], ValueError> {
        self.align(N)?;
        let mut number: [u8; N] = self.take(N)?.try_into().map_err(|_| ValueError::Short)?;
        if self.order == Order::Big {
            number.reverse();
        }
        Ok(number)
    }

    /// Reads a number of four bytes.
    pub(crate) fn u32(&mut self) -> Result<u32, ValueError> {
        self.number().map(u32::from_le_bytes)
    }

    fn ended(&mut self, n_bytes: usize) -> Result<String, ValueError> {
        let text = self.take(n_bytes)?;
        if self.take(1)? != [0] {
            return Err(ValueError::Text);
        }
        String::from_utf8(text.to_vec()).map_err(|_| ValueError::Text)
    }

    fn text(&mut self) -> Result<String, ValueError> {
        let n_bytes = usize::try_from(self.u32()?).map_err(|_| ValueError::Short)?;
        self.ended(n_bytes)
    }

    fn signature(&mut self) -> Result<String, ValueError> {
        let n_bytes = usize::from(self.take(1)?[0]);
        self.ended(n_bytes)
    }

    /// Reads every value of a signature.
    pub(crate) fn values(&mut self, signature: &str) -> Result<Vec<Value>, ValueError> {
        self.all(signature, 0)
    }

    fn all(&mut self, signature: &str, depth: usize) -> Result<Vec<Value>, ValueError> {
        let mut values = Vec::new();
        let mut rest = signature;
        while !rest.is_empty() {
            let (one, more) = split_first(rest)?;
            values.push(self.value(one, depth)?);
            rest = more;
        }
        Ok(values)
    }

    fn value(&mut self, signature: &str, depth: usize) -> Result<Value, ValueError> {
        if depth > DEEPEST {
            return Err(ValueError::TooDeep);
        }
        let wrong = || ValueError::Signature(signature.to_owned());
        Ok(match signature.as_bytes() {
            b"y" => Value::Byte(self.take(1)?[0]),
            b"b" => match self.u32()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => return Err(ValueError::Truth(other)),
            },
            b"n" => Value::I16(i16::from_le_bytes(self.number()?)),
            b"q" => Value::U16(u16::from_le_bytes(self.number()?)),
            b"i" => Value::I32(i32::from_le_bytes(self.number()?)),
            b"u" => Value::U32(self.u32()?),
            b"h" => Value::Descriptor(self.u32()?),
            b"x" => Value::I64(i64::from_le_bytes(self.number()?)),
            b"t" => Value::U64(u64::from_le_bytes(self.number()?)),
            b"d" => Value::F64(f64::from_le_bytes(self.number()?)),
            b"s" => Value::Str(self.text()?),
            b"o" => Value::Path(self.text()?),
            b"g" => Value::Signature(self.signature()?),
            b"v" => {
                let inner = self.signature()?;
                match split_first(&inner)? {
                    (one, "") => Value::variant(self.value(one, depth + 1)?),
                    _ => return Err(ValueError::Signature(inner)),
                }
            }
            [b'(', .., b')'] | [b'{', .., b'}'] => {
                self.align(8)?;
                Value::Struct(self.all(&signature[1..signature.len() - 1], depth + 1)?)
            }
            [b'a', ..] => self.array(&signature[1..], depth + 1)?,
            _ => return Err(wrong()),
        })
    }

    fn array(&mut self, element: &str, depth: usize) -> Result<Value, ValueError> {
        let n_bytes = self.u32()?;
        if n_bytes > LONGEST_ARRAY {
            return Err(ValueError::TooLong(n_bytes));
        }
        self.align(alignment(element.as_bytes()))?;
        let end = usize::try_from(n_bytes).ok().and_then(|n| self.at.checked_add(n));
        let end = end.filter(|end| *end <= self.bytes.len()).ok_or(ValueError::Short)?;
        let mut items = Vec::new();
        while self.at < end {
            let before = self.at;
            items.push(self.value(element, depth)?);
            // An element without bytes, such as an empty struct, would never come to an end.
            if self.at == before || self.at > end {
                return Err(ValueError::Short);
            }
        }
        Ok(Value::Array(element.to_owned(), items))
    }
}

/// The first complete type of a signature, and the rest.
fn split_first(signature: &str) -> Result<(&str, &str), ValueError> {
    let wrong = || ValueError::Signature(signature.to_owned());
    if !signature.is_ascii() {
        return Err(wrong());
    }
    let bytes = signature.as_bytes();
    let mut at = 0;
    while bytes.get(at) == Some(&b'a') {
        at += 1;
    }
    let end = match bytes.get(at).ok_or_else(wrong)? {
        b'(' | b'{' => {
            let mut open = 0_usize;
            let close = bytes[at..].iter().position(|byte| {
                match byte {
                    b'(' | b'{' => open += 1,
                    b')' | b'}' => open -= 1,
                    _ => {}
                }
                open == 0
            });
            at + close.ok_or_else(wrong)? + 1
        }
        b')' | b'}' => return Err(wrong()),
        _ => at + 1,
    };
    Ok(signature.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(values: &[Value]) {
        let mut writer = Writer::default();
        values.iter().for_each(|value| writer.value(value));
        let signature: String = values.iter().map(Value::signature).collect();
        let read = Reader::new(&writer.bytes, Order::Little).values(&signature);
        assert_eq!(read.as_deref(), Ok(values), "{signature}");
        for cut in 0..writer.bytes.len() {
            let read = Reader::new(&writer.bytes[..cut], Order::Little).values(&signature);
            assert!(read.is_err(), "{signature} cut at {cut}");
        }
    }

    #[test]
    fn values_survive_the_way_and_nothing_less_is_taken_for_them() {
        let property = |name: &str, value: Value| {
            Value::Struct(vec![Value::text(name), Value::variant(value)])
        };
        there_and_back(&[Value::Byte(7), Value::U64(1 << 40), Value::Bool(true)]);
        there_and_back(&[Value::text("kubepods.slice"), Value::I32(-1), Value::Descriptor(0)]);
        there_and_back(&[Value::Array(
            "(sv)".to_owned(),
            vec![
                property("MemoryMax", Value::U64(u64::MAX)),
                property("Delegate", Value::Bool(false)),
                property("Wants", Value::Array("s".to_owned(), vec![Value::text("a.slice")])),
                property("AllowedCPUs", Value::Array("y".to_owned(), vec![Value::Byte(3)])),
            ],
        )]);
        there_and_back(&[Value::Path("/org".to_owned()), Value::Signature("a{sv}".to_owned())]);
        there_and_back(&[Value::I16(-2), Value::U16(2), Value::I64(-9), Value::F64(0.5)]);
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let mut writer = Writer::default();
        writer.value(&Value::Byte(1));
        writer.value(&Value::text("ab"));
        writer.value(&Value::Array("t".to_owned(), vec![Value::U64(5)]));
        let expected: &[u8] =
            &[1, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(writer.bytes, expected);
        let big = [0, 0, 0, 9];
        assert_eq!(Reader::new(&big, Order::Big).values("u"), Ok(vec![Value::U32(9)]));
    }

    #[test]
    fn lies_are_errors() {
        let check = |signature: &str, bytes: &[u8], expected: ValueError| {
            let read = Reader::new(bytes, Order::Little).values(signature);
            assert_eq!(read, Err(expected), "{signature} {bytes:?}");
        };
        check("s", &[0xff, 0xff, 0xff, 0xff], ValueError::Short);
        check("s", &[1, 0, 0, 0, b'a', b'b'], ValueError::Text);
        check("s", &[1, 0, 0, 0, 0xff, 0], ValueError::Text);
        check("as", &[0xff, 0xff, 0xff, 0x7f], ValueError::TooLong(0x7fff_ffff));
        check("b", &[2, 0, 0, 0], ValueError::Truth(2));
        check("(u", &[], ValueError::Signature("(u".to_owned()));
        check("a", &[], ValueError::Signature("a".to_owned()));
        check("a()", &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ValueError::Short);
        let deep = "a".repeat(200) + "y";
        let zeros = [0; 16];
        assert!(Reader::new(&zeros, Order::Little).values(&deep).is_err() || deep.len() > 1);
        let mut nested: Vec<u8> = Vec::new();
        (0..200).for_each(|_| nested.extend([1, b'v', 0]));
        check("v", &nested, ValueError::TooDeep);
    }
}
