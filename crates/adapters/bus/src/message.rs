//! Messages of D-Bus and their bytes. Pure.

use std::os::fd::OwnedFd;

use crate::value::{Order, Reader, Value, ValueError, Writer};

/// The bus itself allows 128 MiB; nobody who talks to a node agent needs more than this.
pub(crate) const LONGEST: usize = 4 << 20;
/// The part of a message that says how long it is.
pub(crate) const PREFIX: usize = 16;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;
const N_DESCRIPTORS: u8 = 9;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody is asked.
    Call,
    /// The answer.
    Reply,
    /// The answer is no.
    Error,
    /// Something happened.
    Signal,
}

/// A message.
#[derive(Debug)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// The sender's number for it.
    pub serial: u32,
    /// The number of the call that it answers.
    pub reply_to: Option<u32>,
    /// The object.
    pub path: Option<String>,
    /// The interface.
    pub interface: Option<String>,
    /// The method or the signal.
    pub member: Option<String>,
    /// The kind of error.
    pub error: Option<String>,
    /// Who should get it.
    pub destination: Option<String>,
    /// Who sent it.
    pub sender: Option<String>,
    /// What it says.
    pub body: Vec<Value>,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A byte order that there is not.
    #[error("byte order {0:#x}")]
    Order(u8),
    /// A version of the protocol that we do not speak.
    #[error("version {0} of the protocol")]
    Version(u8),
    /// A kind that there is not.
    #[error("kind {0} of message")]
    Kind(u8),
    /// More than anybody needs.
    #[error("a message of {0} bytes")]
    TooLong(usize),
    /// Something in it.
    #[error(transparent)]
    Value(#[from] ValueError),
}

impl Message {
    /// A message with nothing in it.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            serial: 0,
            reply_to: None,
            path: None,
            interface: None,
            member: None,
            error: None,
            destination: None,
            sender: None,
            body: Vec::new(),
            descriptors: Vec::new(),
        }
    }

    /// True for a signal of that name.
    pub fn is_signal(&self, interface: &str, member: &str) -> bool {
        self.kind == Kind::Signal
            && self.interface.as_deref() == Some(interface)
            && self.member.as_deref() == Some(member)
    }

    /// What a refusal says.
    pub fn refusal(&self) -> String {
        let name = self.error.as_deref().unwrap_or("an error without a name");
        match self.body.first() {
            Some(Value::Str(text)) => format!("{name}: {text}"),
            _ => name.to_owned(),
        }
    }

    /// Its bytes. Descriptors go beside them.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        self.body.iter().for_each(|value| body.value(value));
        let field =
            |code: u8, value: Value| Value::Struct(vec![Value::Byte(code), Value::variant(value)]);
        let mut fields = Vec::new();
        let mut text = |code: u8, value: &Option<String>| {
            fields.extend(value.clone().map(|value| field(code, Value::Str(value))));
        };
        text(INTERFACE, &self.interface);
        text(MEMBER, &self.member);
        text(ERROR_NAME, &self.error);
        text(DESTINATION, &self.destination);
        fields.extend(self.path.clone().map(|path| field(PATH, Value::Path(path))));
        fields.extend(self.reply_to.map(|serial| field(REPLY_SERIAL, Value::U32(serial))));
        if !self.body.is_empty() {
            let signature = self.body.iter().map(Value::signature).collect();
            fields.push(field(SIGNATURE, Value::Signature(signature)));
        }
        if let Ok(n_descriptors @ 1..) = u32::try_from(self.descriptors.len()) {
            fields.push(field(N_DESCRIPTORS, Value::U32(n_descriptors)));
        }
        let kind = match self.kind {
            Kind::Call => 1,
            Kind::Reply => 2,
            Kind::Error => 3,
            Kind::Signal => 4,
        };
        let mut writer = Writer { bytes: vec![b'l', kind, 0, 1] };
        writer.u32(u32::try_from(body.bytes.len()).unwrap_or(u32::MAX));
        writer.u32(self.serial);
        writer.value(&Value::Array("(yv)".to_owned(), fields));
        writer.align(8);
        writer.bytes.extend(body.bytes);
        writer.bytes
    }

    /// How many bytes a message has that begins so.
    pub(crate) fn length(prefix: &[u8; PREFIX]) -> Result<usize, MessageError> {
        let order = order(prefix[0])?;
        let mut reader = Reader::new(&prefix[4..], order);
        let (body, _serial, fields) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let wide = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let header = PREFIX.saturating_add(wide(fields)).checked_next_multiple_of(8);
        let length = header.unwrap_or(usize::MAX).saturating_add(wide(body));
        if length > LONGEST { Err(MessageError::TooLong(length)) } else { Ok(length) }
    }

    /// Reads a whole message.
    pub(crate) fn decode(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, MessageError> {
        let [first, kind, _flags, version, ..] = *bytes else {
            return Err(ValueError::Short.into());
        };
        let order = order(first)?;
        if version != 1 {
            return Err(MessageError::Version(version));
        }
        let kind = match kind {
            1 => Kind::Call,
            2 => Kind::Reply,
            3 => Kind::Error,
            4 => Kind::Signal,
            other => return Err(MessageError::Kind(other)),
        };
        let mut reader = Reader::new(bytes, order);
        let values = reader.values("yyyyuua(yv)")?;
        reader.align(8)?;
        let mut message = Self { descriptors, ..Self::new(kind) };
        let mut signature = String::new();
        for value in values {
            match value {
                Value::U32(serial) => message.serial = serial,
                Value::Array(_, fields) => {
                    fields.into_iter().for_each(|it| message.take_field(it, &mut signature));
                }
                _ => {}
            }
        }
        let body = bytes.get(reader.position()..).unwrap_or_default();
        message.body = Reader::new(body, order).values(&signature)?;
        Ok(message)
    }

    /// Fields that are not known are passed over, as the specification wants it.
    fn take_field(&mut self, field: Value, signature: &mut String) {
        let Value::Struct(parts) = field else {
            return;
        };
        let [Value::Byte(code), value] = parts.as_slice() else {
            return;
        };
        match (*code, value.inner().clone()) {
            (PATH, Value::Path(it)) => self.path = Some(it),
            (INTERFACE, Value::Str(it)) => self.interface = Some(it),
            (MEMBER, Value::Str(it)) => self.member = Some(it),
            (ERROR_NAME, Value::Str(it)) => self.error = Some(it),
            (REPLY_SERIAL, Value::U32(it)) => self.reply_to = Some(it),
            (DESTINATION, Value::Str(it)) => self.destination = Some(it),
            (SENDER, Value::Str(it)) => self.sender = Some(it),
            (SIGNATURE, Value::Signature(it)) => *signature = it,
            _ => {}
        }
    }
}

fn order(byte: u8) -> Result<Order, MessageError> {
    match byte {
        b'l' => Ok(Order::Little),
        b'B' => Ok(Order::Big),
        other => Err(MessageError::Order(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Message {
        Message {
            serial: 7,
            path: Some("/org/freedesktop/login1".to_owned()),
            interface: Some("org.freedesktop.login1.Manager".to_owned()),
            member: Some("Inhibit".to_owned()),
            destination: Some("org.freedesktop.login1".to_owned()),
            body: ["shutdown", "kubelet", "why", "delay"].map(Value::text).to_vec(),
            ..Message::new(Kind::Call)
        }
    }

    #[test]
    fn a_message_survives_the_way_and_knows_its_length() {
        let bytes = call().encode();
        let prefix = bytes[..PREFIX].try_into().unwrap();
        assert_eq!(Message::length(prefix), Ok(bytes.len()));
        let read = Message::decode(&bytes, Vec::new()).unwrap();
        assert_eq!(
            (read.kind, read.serial, read.member.as_deref()),
            (Kind::Call, 7, Some("Inhibit"))
        );
        assert_eq!(read.path, call().path);
        assert_eq!(read.destination, call().destination);
        assert_eq!(read.body, call().body);
    }

    #[test]
    fn what_is_no_message_is_told() {
        let bytes = call().encode();
        let check = |at: usize, byte: u8, expected: MessageError| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            let found = Message::decode(&bytes, Vec::new()).map(|it| it.serial);
            assert_eq!(found, Err(expected));
        };
        check(0, b'x', MessageError::Order(b'x'));
        check(1, 9, MessageError::Kind(9));
        check(3, 2, MessageError::Version(2));
        let mut long = bytes[..PREFIX].to_vec();
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let found = Message::length(long.as_slice().try_into().unwrap());
        assert!(matches!(found, Err(MessageError::TooLong(_))), "{found:?}");
        // Whatever is cut off or turned over is an error or another message, never a panic.
        for at in 0..bytes.len() {
            let _ = Message::decode(&bytes[..at], Vec::new());
            for byte in [0, 1, 0x7f, 0xff] {
                let mut turned = bytes.clone();
                turned[at] = byte;
                let _ = Message::decode(&turned, Vec::new());
            }
        }
    }
}
