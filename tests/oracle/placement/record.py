# record.py ORACLE SEED N KIND OUT.gz: asks the oracle N random questions and packs questions and answers.
# A question that upstream does not answer within three seconds is recorded as one on which it hangs.
import gzip, json, os, select, subprocess, sys

oracle, seed, n, kind, out = sys.argv[1:6]
gen = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen.py")
questions = subprocess.run([sys.executable, gen, seed, n, kind], capture_output=True, check=True).stdout.splitlines()


def start():
    return subprocess.Popen([oracle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


process, hangs = start(), 0
with gzip.GzipFile(out, "wb", 9, mtime=0) as packed:
    for line in questions:
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        if select.select([process.stdout], [], [], 3)[0]:
            answer = json.loads(process.stdout.readline())
        else:
            process.kill()
            process.wait()
            process, answer, hangs = start(), {"error": "hang"}, hangs + 1
        row = {"q": json.loads(line)["In"], "a": answer.get("out")}
        if answer.get("error"):
            row["e"] = answer["error"]
        packed.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
process.stdin.close()
process.wait()
print(out, "hangs:", hangs)
