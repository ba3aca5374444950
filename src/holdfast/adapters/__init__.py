"""One folder per outside thing, each implementing ports; and what is too small for a folder.

`outbound` is the one exchange for HTTP that goes out. By it `prometheus` asks for a number,
`openid` asks an issuer about a person, `engines` asks inference servers what they serve, and
`hub_heads` asks a model hub where a branch is; `hub` downloads a model. `sql_ledger` is what both
SQL ledgers do alike, `clock` the machine's clock, `log_stream` writes log lines that block nobody.
"""
