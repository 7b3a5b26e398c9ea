"""A language model in your own Python, natively and in the Pyodide of any page, with the calls of OpenAI's client:

sonata = await Sonata.load("model.gguf")
answer = await sonata.chat.completions.create(messages=[{"role": "user", "content": "Hello"}])
print(answer.choices[0].message.content)
"""

from sonata.client import Answer, Sonata, SonataError

__all__ = ["Answer", "Sonata", "SonataError"]
